// What the command line does to files on errors: it prints one line, returns status 2, and leaves existing files
// unchanged. cli_refused_test.cpp has wrong arguments and malformed files.
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <thread>

#include "support/cli.hpp"
#include "support/sanitized.hpp"

namespace evenorm::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

class CliFiles : public InFolder {
 protected:
  CliFiles() {
    write("x.npy", "(2, 3)", {4, 2, 8, 1, 2, 4});
    write("y.npy", "old");
  }
};

TEST_F(CliFiles, NamesWrongPathsAndEqualOutputs) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  refused("apply / -o y.npy", "/ is a directory");
  refused("apply /dev/zero -o y.npy", "/dev/zero is a device or pipe, but should be a regular file");
  refused("apply fifo -o y.npy", "fifo is a device or pipe");
  refused("apply x.npy -o x.npy/y.npy", "x.npy/y.npy: cannot be written: Not a directory");
  refused("apply x.npy -o " + std::string(300, 'y'), "cannot be written: File name too long");
  refused("apply x.npy -o y.npy --mean y.npy", "y.npy, but should be another file than that of -o");
  fs::create_symlink("y.npy", folder / "link.npy");
  refused("apply x.npy -o y.npy --rstd link.npy", "--rstd is");
  refused("apply x.npy -o y.npy --mean m.npy --rstd ./m.npy", "than that of --mean");
}

TEST_F(CliFiles, DevicesAndPipesAreWrittenDirectly) {
  done("apply x.npy -o /dev/null --mean /dev/null");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = read("fifo"); });
  done("apply x.npy -o fifo");
  reader.join();
  done("apply x.npy -o y.npy");
  EXPECT_EQ(received, read("y.npy"));
  EXPECT_TRUE(fs::is_fifo(folder / "fifo"));
}

// The target of standard output is written in place, whatever name leads to it.
TEST_F(CliFiles, StandardOutputByNameIsNotReplaced) {
  const std::string apply_to = "apply x.npy -o ";
  done(apply_to + "expected.npy");
  ProgramSetting appended{.out_path = folder / "y.npy"};
  appended.before_exec = [] { fcntl(STDOUT_FILENO, F_SETFL, O_APPEND); };
  for (const char* name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    write("y.npy", "old");
    done(apply_to + name, appended);
    EXPECT_EQ(read("y.npy"), "old" + read("expected.npy")) << name;
  }
  write("y.npy", "old");
  for (const std::string name : {"/dev/stdout", "y.npy"}) {
    refused(apply_to + name + " --json", "--json goes to standard output", appended);
    refused(apply_to + "- --mean " + name, "--mean is " + name, appended);
  }
}

TEST_F(CliFiles, ReportsAFullDiskInOneLine) {
  refused("apply x.npy -o /dev/full", "/dev/full: cannot be written: No space left on device");
  for (const char* arguments : {"info", "--help", "--version"}) {
    refused(arguments, "evenorm: standard output: No space left on device\n", {.out_path = "/dev/full"});
  }
}

TEST_F(CliFiles, ReportsAFileSizeLimitInOneLine) {
  ProgramSetting limited;
  limited.before_exec = [] {
    const rlimit limit{130, 130};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  refused("apply x.npy -o y.npy", "y.npy: cannot be written: File too large", limited);
  refused("explain 4,2,8 --html y.npy", "y.npy: cannot be written: File too large", limited);
}

// Mounts a file system of 1 MiB if this process may do so.
TEST_F(CliFiles, AFullDiskKeepsTheOldOutput) {
  const std::string disk = folder / "disk";
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "no file system can be mounted here; ReportsAFileSizeLimitInOneLine is similar";
  }
  write_file(disk + "/y.npy", "old");
  for (const bool fortran_order : {false, true}) {
    write("x.npy", "(1024, 1024)", Floats(1 << 20), fortran_order);
    refused("apply x.npy -o disk/y.npy", "y.npy: cannot be written: No space left on device");
    EXPECT_EQ(read_file(disk + "/y.npy"), "old");
    EXPECT_EQ(std::distance(fs::directory_iterator(disk), {}), 1);
  }
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

TEST_F(CliFiles, ReportsMissingMemoryInOneLine) {
  if (kSanitized) GTEST_SKIP() << "sanitizers report this error themselves";
  write_zeros(folder / "huge.npy", "(65536, 65536)", std::size_t{1} << 32);
  refused("grad - huge.npy -o y.npy --dweight dw.npy", "17,179,869,184 bytes of memory cannot be allocated",
          {.memory = std::size_t{64} << 20U, .input = npy_bytes_of("<f4", "(65536, 65536)", "")});
}

TEST_F(CliFiles, LinksAreFollowed) {
  fs::create_symlink("later.npy", folder / "second");
  fs::create_symlink(folder / "second", folder / "first");
  for (int i = 0; i < 2; ++i) {  // a dangling link at first
    done("apply x.npy -o first");
    for (const char* link : {"first", "second"}) EXPECT_TRUE(fs::is_symlink(folder / link)) << link;
    EXPECT_THAT(read("later.npy"), HasSubstr("NUMPY"));
  }
  fs::create_symlink("no/such", folder / "nowhere");
  refused("apply x.npy -o nowhere", "nowhere: cannot be written: No such file");
  fs::create_symlink("loop", folder / "loop");
  refused("apply x.npy -o loop", "loop: cannot be written: Too many levels");
  fs::remove(folder / "later.npy");
  refused("apply x.npy -o y.npy --mean first --rstd later.npy", "should be another file than that of --mean");
}

TEST_F(CliFiles, KeepsPermissionsForAnyUmask) {
  ProgramSetting strict;
  strict.before_exec = [] { umask(077); };
  for (const std::string line : {"apply x.npy -o ", "explain 4,2,8 --html "}) {
    for (const auto permissions : {fs::perms(0666), fs::perms(0640)}) {
      write("y.npy", "old");
      fs::permissions(folder / "y.npy", permissions);
      (void)output(line + "y.npy", strict);
      EXPECT_EQ(fs::status(folder / "y.npy").permissions(), permissions);
      EXPECT_NE(read("y.npy"), "old");
    }
    (void)output(line + "new", strict);
    EXPECT_EQ(fs::status(folder / "new").permissions(), fs::perms(0600));
    fs::remove(folder / "new");
  }
  EXPECT_EQ(folder.names(), (Words{"x.npy", "y.npy"}));
}

// --- outputs that replace files: all or none, keeping owner and permissions ----------------------------------------

constexpr unsigned kNobody = 65534;

// Makes renameat2 fail, as on file systems that cannot exchange two names (NFS). Runs in the child before exec.
void no_exchange() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    _exit(126);
  }
}

class CliReplaced : public InFolder, public ::testing::WithParamInterface<const char*> {
 protected:
  CliReplaced() {
    x = npy_bytes_of("<f4", "(2, 3)", bytes_of<float>({4, 2, 8, 1, 2, 4}));
    write("x.npy", x);
    EXPECT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  }

  static ProgramSetting setting() {
    return GetParam() == "Exchanged"s ? ProgramSetting{} : ProgramSetting{.before_exec = no_exchange};
  }
  // Calls `meanwhile` while the program waits for dy and all of its temporary files exist.
  ProgramSetting setting_with(const std::function<void()>& meanwhile, std::size_t outputs) const {
    ProgramSetting result = setting();
    result.in_path = folder / "in";
    result.while_running = [this, meanwhile, outputs, before = folder.names().size()](pid_t) {
      const int fd = open((folder / "in").c_str(), O_WRONLY | O_CLOEXEC);
      EXPECT_EQ(::write(fd, x.data(), x.size() - 4), static_cast<ssize_t>(x.size() - 4));
      wait_until([&] { return folder.names().size() >= before + outputs; });
      meanwhile();
      EXPECT_EQ(::write(fd, x.data() + x.size() - 4, 4), 4);
      close(fd);
    };
    return result;
  }

  std::string x;
};

TEST_P(CliReplaced, ReplacesAllOutputs) {
  write("dx.npy", "old");
  write("db.npy", "old");
  done("grad x.npy x.npy -o dx.npy --dweight dw.npy --dbias db.npy", setting());
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("db.npy", "dw.npy", "dx.npy", "in", "x.npy"));
  for (const char* name : {"dx.npy", "dw.npy", "db.npy"}) EXPECT_THAT(read(name), HasSubstr("NUMPY"));
}

// Meanwhile a folder takes the place of one output: the last, one that did not exist, or the first.
TEST_P(CliReplaced, ReplacesNoneIfOneFails) {
  for (const std::string name : {"db.npy", "dw.npy", "dx.npy"}) {
    for (const char* old : {"dx.npy", "db.npy"}) write(old, "old");
    const auto before = folder.state();
    expect_refused(words_of("grad x.npy - -o dx.npy --dweight dw.npy --dbias db.npy"),
                   name + ": cannot be replaced: Is a directory\n",
                   here(setting_with(
                       [&] {
                         fs::remove(folder / name);
                         fs::create_directories((folder / name) + "/in it");
                       },
                       3)));
    EXPECT_TRUE(fs::remove((folder / name) + "/in it"));
    fs::remove(folder / name);
    auto others = before;
    std::erase_if(others, [&](const std::string& state) { return state.starts_with(name); });
    EXPECT_EQ(folder.state(), others);
  }
}

// In a sticky folder such as /tmp, another user's file may be writable but cannot be replaced.
TEST_P(CliReplaced, ReplacesNoneIfOneIsAnotherUsersInAStickyFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "files of two users are needed";
  fs::permissions(folder / ".", fs::perms(01777));
  for (const char* name : {"dx.npy", "db.npy"}) {
    write(name, "old");
    fs::permissions(folder / name, fs::perms(0666));
  }
  ASSERT_EQ(chown((folder / "dx.npy").c_str(), kNobody, kNobody), 0);
  const fs::path own = folder / "evenorm";
  fs::copy_file(program(), own);  // only root may be able to read the build folder
  ProgramSetting as_nobody{.program = own};
  as_nobody.before_exec = [more = setting().before_exec] {
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(125);
    if (more) more();
  };
  for (const char* order : {"-o dx.npy --dweight dw.npy --dbias db.npy", "-o db.npy --dweight dw.npy --dbias dx.npy"}) {
    refused("grad x.npy x.npy "s + order, "db.npy: cannot be replaced: Operation not permitted\n", as_nobody);
  }
}

TEST_P(CliReplaced, KeepsOwnerAndPermissionsWhenRootReplaces) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  for (const char* name : {"dx.npy", "dw.npy"}) {
    write(name, "old");
    fs::permissions(folder / name, fs::perms(0640));
    ASSERT_EQ(chown((folder / name).c_str(), 1234, 2345), 0);
  }
  done("grad x.npy x.npy -o dx.npy --dweight dw.npy --dbias new.npy", setting());
  done("apply x.npy -o dx.npy", setting());
  struct stat status {};
  for (const char* name : {"dx.npy", "dw.npy"}) {
    ASSERT_EQ(stat((folder / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, 1234U) << name;
    EXPECT_EQ(status.st_gid, 2345U) << name;
    EXPECT_EQ(status.st_mode & 07777U, 0640U) << name;
  }
  ASSERT_EQ(stat((folder / "new.npy").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, geteuid());
}

INSTANTIATE_TEST_SUITE_P(, CliReplaced, ::testing::Values("Exchanged", "Renamed"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace evenorm::testing

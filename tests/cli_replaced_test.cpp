// Outputs that take the place of files: all of them or none, with the owner and permissions of what was there.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <thread>

#include "support/places.hpp"
#include "support/program.hpp"

namespace evenorm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::operator+;
using testing::npy_bytes_of;
using testing::ProgramRun;
using testing::ProgramSetting;
using testing::read_file;
using testing::run_evenorm;
using testing::TemporaryFolder;
using testing::Words;
using testing::write_file;

constexpr unsigned kNobody = 65534;

// As on file systems that cannot exchange two names (NFS): renameat2 is refused. In the child, before it becomes the
// program.
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

class CliReplaced : public ::testing::TestWithParam<const char*> {
 protected:
  CliReplaced() {
    x = npy_bytes_of("<f4", "(2, 3)", testing::bytes_of<float>({4, 2, 8, 1, 2, 4}));
    write_file(folder / "x.npy", x);
    EXPECT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  }

  Words grad(const std::string& dy, const Words& names) const {
    constexpr const char* kOptions[] = {"-o", "--dweight", "--dbias"};
    Words words{"grad", folder / "x.npy", dy};
    for (std::size_t i = 0; i < names.size(); ++i) words = words + Words{kOptions[i], folder / names[i]};
    return words;
  }
  static ProgramSetting setting() {
    return std::string_view(GetParam()) == "Exchanged" ? ProgramSetting{} : ProgramSetting{.before_exec = no_exchange};
  }
  // While the program waits for dy with all its temporary files in place.
  ProgramSetting setting_with(const std::function<void()>& meanwhile, std::size_t outputs) const {
    ProgramSetting result = setting();
    result.in_path = folder / "in";
    result.while_running = [this, meanwhile, outputs, before = folder.names().size()](pid_t) {
      const int fd = open((folder / "in").c_str(), O_WRONLY | O_CLOEXEC);
      EXPECT_EQ(write(fd, x.data(), x.size() - 4), static_cast<ssize_t>(x.size() - 4));
      for (int i = 0; i < 1000 && folder.names().size() < before + outputs; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      meanwhile();
      EXPECT_EQ(write(fd, x.data() + x.size() - 4, 4), 4);
      close(fd);
    };
    return result;
  }

  TemporaryFolder folder;
  std::string x;
};

TEST_P(CliReplaced, AllOfThem) {
  write_file(folder / "dx.npy", "old");
  write_file(folder / "db.npy", "old");
  const Words words = grad(folder / "x.npy", {"dx.npy", "dw.npy", "db.npy"});
  ASSERT_EQ(run_evenorm(words, setting()).status, 0);
  EXPECT_THAT(folder.names(), ::testing::ElementsAre("db.npy", "dw.npy", "dx.npy", "in", "x.npy"));
  for (const char* name : {"dx.npy", "dw.npy", "db.npy"}) EXPECT_THAT(read_file(folder / name), HasSubstr("NUMPY"));
}

// The place of one is taken by a folder meanwhile: of the last, of one that was not there, of the first.
TEST_P(CliReplaced, NoneWhereOneIsRefused) {
  for (const char* name : {"db.npy", "dw.npy", "dx.npy"}) {
    const std::string refused = name;
    write_file(folder / "dx.npy", "old");
    write_file(folder / "db.npy", "old");
    struct stat before {
    }, after{};
    ASSERT_EQ(stat((folder / "dx.npy").c_str(), &before), 0);
    const ProgramSetting setting = setting_with(
        [&] {
          fs::remove(folder / refused);
          fs::create_directories((folder / refused) + "/in it");
        },
        3);
    const ProgramRun run = run_evenorm(grad("-", {"dx.npy", "dw.npy", "db.npy"}), setting);
    EXPECT_EQ(run.status, 2) << run.signal;
    EXPECT_TRUE(run.one_line());
    EXPECT_THAT(run.err, HasSubstr(refused + ": cannot be replaced: Is a directory\n"));
    EXPECT_TRUE(fs::exists((folder / refused) + "/in it"));
    if (refused != "dx.npy") {
      EXPECT_EQ(read_file(folder / "dx.npy"), "old");
      ASSERT_EQ(stat((folder / "dx.npy").c_str(), &after), 0);
      EXPECT_EQ(after.st_ino, before.st_ino);
    }
    fs::remove_all(folder / refused);
    if (refused != "dw.npy") write_file(folder / refused, "old");
    EXPECT_THAT(folder.names(), ::testing::ElementsAre("db.npy", "dx.npy", "in", "x.npy"));
    EXPECT_EQ(read_file(folder / "db.npy"), "old");
  }
}

// Another's file in a folder like /tmp may be written, but not replaced.
TEST_P(CliReplaced, NoneWhereOneIsAnothersInAStickyFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "files of two users are needed";
  fs::permissions(folder / ".", fs::perms(01777));
  for (const char* name : {"dx.npy", "db.npy"}) {
    write_file(folder / name, "old");
    fs::permissions(folder / name, fs::perms(0666));
  }
  ASSERT_EQ(chown((folder / "dx.npy").c_str(), kNobody, kNobody), 0);
  const fs::path program = folder / "evenorm";
  fs::copy_file(testing::program(), program);  // the build's folder may be root's alone
  ProgramSetting as_nobody{.program = program};
  as_nobody.before_exec = [more = setting().before_exec] {
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(125);
    if (more) more();
  };
  for (const Words& order : {Words{"dx.npy", "dw.npy", "db.npy"}, Words{"db.npy", "dw.npy", "dx.npy"}}) {
    const ProgramRun run = run_evenorm(grad(folder / "x.npy", order), as_nobody);
    EXPECT_EQ(run.status, 2) << run.signal;
    EXPECT_THAT(run.err, HasSubstr("db.npy: cannot be replaced: Operation not permitted\n"));
    EXPECT_EQ(read_file(folder / "dx.npy"), "old");
    EXPECT_EQ(read_file(folder / "db.npy"), "old");
    EXPECT_THAT(folder.names(), ::testing::ElementsAre("db.npy", "dx.npy", "evenorm", "in", "x.npy"));
  }
}

TEST_P(CliReplaced, OwnerAndPermissionsStayWhereRootReplaces) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  for (const char* name : {"dx.npy", "dw.npy"}) {
    write_file(folder / name, "old");
    fs::permissions(folder / name, fs::perms(0640));
    ASSERT_EQ(chown((folder / name).c_str(), 1234, 2345), 0);
  }
  ASSERT_EQ(run_evenorm(grad(folder / "x.npy", {"dx.npy", "dw.npy", "new.npy"}), setting()).status, 0);
  ASSERT_EQ(run_evenorm({"apply", folder / "x.npy", "-o", folder / "dx.npy"}, setting()).status, 0);
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
}  // namespace evenorm

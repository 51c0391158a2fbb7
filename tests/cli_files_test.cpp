// What the command line does to files when something is wrong: one line, status 2, and what was there before is still
// there.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "support/program.hpp"
#include "support/sanitized.hpp"

namespace evenorm {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::kSanitizersCost;
using testing::npy_bytes;
using testing::npy_bytes_of;
using testing::ProgramRun;
using testing::ProgramSetting;
using testing::read_file;
using testing::run_evenorm;
using testing::TemporaryFolder;
using testing::write_file;

class CliFiles : public ::testing::Test {
 protected:
  CliFiles() {
    write_file(folder / "x.npy", npy_bytes_of("<f4", "(2, 3)", bytes_of<float>({4, 2, 8, 1, 2, 4})));
    write_file(folder / "w5.npy", npy_bytes_of("<f4", "(5,)", bytes_of<float>({1, 2, 3, 4, 5})));
    write_file(folder / "y.npy", "old");
  }

  // Refused in one line that says `what`, and the folder is as it was.
  void expect_refused(const std::vector<std::string>& arguments, const std::string& what,
                      const ProgramSetting& setting = {}) {
    const auto names = folder.names();
    const ProgramRun run = run_evenorm(arguments, setting);
    EXPECT_EQ(run.status, 2) << run.signal;
    EXPECT_TRUE(run.one_line()) << run.err;
    EXPECT_THAT(run.err, HasSubstr(what));
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(folder.names(), names);
    EXPECT_EQ(read_file(folder / "y.npy"), "old");
  }

  std::vector<std::string> apply(std::vector<std::string> options = {}) const {
    std::vector<std::string> arguments{"apply", folder / "x.npy", "-o", folder / "y.npy"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  }

  TemporaryFolder folder;
};

TEST_F(CliFiles, WrongArgumentsAreNamed) {
  expect_refused(apply({"--eps", "nan"}), "eps is nan");
  expect_refused(apply({"--eps", "-1"}), "eps is -1");
  expect_refused(apply({"--eps", "small"}), "--eps is 'small', but should be a finite number >= 0");
  expect_refused(apply({"--threads", "-1"}), "--threads is '-1', but should be 1 to 1024, or 0 for one per processor");
  expect_refused(apply({"--threads", "2000"}), "--threads is '2000'");
  expect_refused(apply({"--normalized-shape", "3,x"}), "--normalized-shape is '3,x', but should be sizes");
  expect_refused(apply({"--normalized-shape", ""}), "--normalized-shape");
  expect_refused(apply({"--weight", ""}), "--weight");
  expect_refused(apply({"--normalized-shape", "8"}), "has shape (2, 3), which should end in it");
  expect_refused(apply({"--weight", folder / "w5.npy", "--normalized-shape", "2,3"}),
                 "weight has shape (5), but normalized_shape is (2, 3)");
  expect_refused(apply({"--bias", folder / "w5.npy", "--normalized-shape", "3"}),
                 "bias has shape (5), but normalized_shape is (3)");
  expect_refused(apply({"--zero-centered"}), "weight is absent");
  expect_refused(apply({"--rms", "--mean", folder / "mean.npy"}), "mean is given, but RMS norm has none");
  expect_refused(apply({"--colour"}), "--colour");
  expect_refused({"apply", folder / "x.npy"}, "--output is required");
  expect_refused({"apply"}, "X is required");
  expect_refused({"appply"}, "appply");
  expect_refused({}, "no subcommand is given");
}

TEST_F(CliFiles, WrongPathsAreNamed) {
  const auto from = [&](const std::string& x) { return std::vector<std::string>{"apply", x, "-o", folder / "y.npy"}; };
  expect_refused(from(folder / "none.npy"), (folder / "none.npy") + ": cannot be read: No such file or directory");
  expect_refused(from("/"), "/ is a directory");
  expect_refused(from("/dev/zero"), "/dev/zero is a device or pipe, but should be a regular file");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  expect_refused(from(folder / "fifo"), "fifo is a device or pipe");
  expect_refused(apply({"--weight", folder / "none.npy"}), "none.npy: cannot be read");
  const auto to = [&](const std::string& y) { return std::vector<std::string>{"apply", folder / "x.npy", "-o", y}; };
  expect_refused(to(folder / "no/folder/y.npy"), "y.npy: cannot be written: No such file or directory");
  expect_refused(to("/tmp"), "/tmp is a directory");
  expect_refused(to(folder / "x.npy/y.npy"), "x.npy/y.npy: cannot be written: Not a directory");
  expect_refused(to(folder / std::string(300, 'y')), "cannot be written: File name too long");
}

TEST_F(CliFiles, NamesOnErrorLinesStayOnOneLine) {
  expect_refused({"apply", folder / "a\nb\x1b[31m.npy", "-o", folder / "y.npy"}, "a?b?[31m.npy: cannot be read");
}

TEST_F(CliFiles, OutputsAreDistinct) {
  const std::string y = folder / "y.npy";
  expect_refused(apply({"--mean", y}), "--mean is " + y + ", but should be another file than that of -o");
  fs::create_symlink("y.npy", folder / "link.npy");
  expect_refused(apply({"--rstd", folder / "link.npy"}), "--rstd is");
  expect_refused(apply({"--mean", folder / "m.npy", "--rstd", folder / "./m.npy"}), "than that of --mean");
}

// Malformed inputs cost next to nothing: a header's sizes are believed only after the file's own size.
TEST_F(CliFiles, MalformedInputsAreRefusedQuicklyInLittleMemory) {
  const std::string bits(24, 'x');
  const std::vector<std::pair<std::string, const char*>> files = {
      {"", "is empty"},
      {"not an array", "is not a .npy file"},
      {npy_bytes_of("<f4", "(2, 3)", bits.substr(1)), "has 23 bytes of data, but should have 24"},
      {npy_bytes_of("<f4", "(4611686018427387904,)", bits), "takes 2^63 bytes or more"},
      {npy_bytes_of("<f4", "(1099511627776,)", bits), "should have 4,398,046,511,104"},
      {npy_bytes_of("<f4", "(99999999999999999999,)", bits), "above 2^63 - 1"},
      {npy_bytes_of("<i4", "(2, 3)", bits), "has type '<i4'"},
      {npy_bytes_of("|O", "(2, 3)", bits), "has type '|O'"},
      {npy_bytes_of("<f4", "()", "abcd"), "has shape (), but should have an axis to normalise"},
      {npy_bytes_of("<f4", "(2, 0)", ""), "normalized_shape is (0), but it should have at least one element"},
      {npy_bytes_of("<f4", "(4611686018427387904, 4611686018427387904, 0, 8)", ""), ""},
      {npy_bytes(std::string(80000, '{'), bits, 2), "has a header of 80,000 bytes"},
      {npy_bytes("{", bits, 9), "has .npy version 9.0"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14), "says that its header has 4,294,967,295"},
  };
  for (const auto& [bytes, what] : files) {
    write_file(folder / "x.npy", bytes);
    const ProgramRun run = run_evenorm(apply());
    if (*what == '\0' && run.status == 0) {  // nothing in it, but nothing wrong with it
      write_file(folder / "y.npy", "old");
      continue;
    }
    EXPECT_EQ(run.status, 2) << what << " signal " << run.signal;
    EXPECT_TRUE(run.one_line()) << run.err;
    EXPECT_THAT(run.err, HasSubstr(what));
    EXPECT_LT(run.cpu_seconds, 1 * kSanitizersCost) << what;
    // Sanitizers need memory of their own, and the test program, from which this counts on, needs more then.
    if (!testing::kSanitized) {
      EXPECT_LT(run.max_rss_kib, 256 * 1024) << what;
    }
    EXPECT_EQ(read_file(folder / "y.npy"), "old");
  }
}

TEST_F(CliFiles, DevicesAndPipesAreWrittenDirectly) {
  EXPECT_EQ(run_evenorm({"apply", folder / "x.npy", "-o", "/dev/null", "--mean", "/dev/null"}).status, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const ProgramRun run = run_evenorm({"apply", folder / "x.npy", "-o", "/dev/stdout"});
  EXPECT_EQ(run.status, 0) << run.err;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = read_file(folder / "fifo"); });
  EXPECT_EQ(run_evenorm({"apply", folder / "x.npy", "-o", folder / "fifo"}).status, 0);
  reader.join();
  ASSERT_EQ(run_evenorm({"apply", folder / "x.npy", "-o", folder / "y.npy"}).status, 0);
  EXPECT_EQ(received, read_file(folder / "y.npy"));
  EXPECT_TRUE(fs::is_fifo(folder / "fifo"));
}

// Whatever its name, what standard output goes to is written where that stands.
TEST_F(CliFiles, StandardOutputByNameIsNotReplaced) {
  ASSERT_EQ(run_evenorm({"apply", folder / "x.npy", "-o", folder / "expected.npy"}).status, 0);
  ProgramSetting appended{.out_path = folder / "y.npy"};
  appended.before_exec = [] { fcntl(STDOUT_FILENO, F_SETFL, O_APPEND); };
  for (const char* name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    write_file(folder / "y.npy", "old");
    const ProgramRun run = run_evenorm({"apply", folder / "x.npy", "-o", name}, appended);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(read_file(folder / "y.npy"), "old" + read_file(folder / "expected.npy")) << name;
  }
  write_file(folder / "y.npy", "old");
  for (const std::string& name : {std::string("/dev/stdout"), folder / "y.npy"}) {
    expect_refused({"apply", folder / "x.npy", "-o", name, "--json"}, "--json goes to standard output", appended);
    expect_refused({"apply", folder / "x.npy", "-o", "-", "--mean", name}, "--mean is " + name, appended);
  }
}

TEST_F(CliFiles, AFullDiskIsOneLine) {
  expect_refused({"apply", folder / "x.npy", "-o", "/dev/full"},
                 "/dev/full: cannot be written: No space left on device");
  // The second of two outputs: the first is not replaced either.
  expect_refused(apply({"--mean", "/dev/full"}), "/dev/full: cannot be written: No space left on device");
  for (const char* arguments : {"info", "--help", "--version"}) {
    const ProgramRun run = run_evenorm({arguments}, {.out_path = "/dev/full"});
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.err, "evenorm: standard output: No space left on device\n");
  }
}

TEST_F(CliFiles, AFileSizeLimitIsOneLine) {
  ProgramSetting limited;
  limited.before_exec = [] {
    const rlimit limit{130, 130};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  expect_refused(apply(), "y.npy: cannot be written: File too large", limited);
}

TEST_F(CliFiles, AClosedPipeIsOneLine) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const std::vector<float> many(1 << 20, 1.0F);  // more than a pipe holds
  write_file(folder / "x.npy", npy_bytes_of("<f4", "(1024, 1024)", bytes_of(many)));
  std::thread reader([&] {
    const int fd = open((folder / "fifo").c_str(), O_RDONLY);
    char byte = 0;
    EXPECT_EQ(read(fd, &byte, 1), 1);
    close(fd);
  });
  expect_refused({"apply", folder / "x.npy", "-o", folder / "fifo"}, "fifo: cannot be written: Broken pipe");
  reader.join();
}

// The second output is a FIFO that nobody reads, so the run waits with the first one's temporary file in place.
TEST_F(CliFiles, SignalsRemoveTheTemporaryFile) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const auto names = folder.names();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ProgramSetting interrupted;
    interrupted.while_running = [&](pid_t child) {
      for (int i = 0; i < 1000 && folder.names().size() == names.size(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_EQ(folder.names().size(), names.size() + 1);
      kill(child, signal);
    };
    const ProgramRun run = run_evenorm(apply({"--mean", folder / "fifo"}), interrupted);
    EXPECT_EQ(run.signal, signal);
    EXPECT_EQ(run.err, "");
    EXPECT_EQ(folder.names(), names);
    EXPECT_EQ(read_file(folder / "y.npy"), "old");
  }
}

TEST_F(CliFiles, DanglingLinksAreFollowed) {
  fs::create_symlink("later.npy", folder / "second");
  fs::create_symlink(folder / "second", folder / "first");
  ASSERT_EQ(run_evenorm({"apply", folder / "x.npy", "-o", folder / "first"}).status, 0);
  EXPECT_TRUE(fs::is_symlink(folder / "first"));
  EXPECT_TRUE(fs::is_symlink(folder / "second"));
  EXPECT_THAT(read_file(folder / "later.npy"), HasSubstr("NUMPY"));
  fs::create_symlink("no/such", folder / "nowhere");
  expect_refused({"apply", folder / "x.npy", "-o", folder / "nowhere"}, "nowhere: cannot be written: No such file");
  fs::create_symlink("loop", folder / "loop");
  expect_refused({"apply", folder / "x.npy", "-o", folder / "loop"}, "loop: cannot be written: Too many levels");
  const std::string nowhere = folder / "later.npy";
  fs::remove(nowhere);
  expect_refused(apply({"--mean", folder / "first", "--rstd", nowhere}), "should be another file than that of --mean");
}

TEST_F(CliFiles, PermissionsStayWhateverTheUmask) {
  ProgramSetting strict;
  strict.before_exec = [] { umask(077); };
  for (const auto permissions : {fs::perms(0666), fs::perms(0640)}) {
    fs::permissions(folder / "y.npy", permissions);
    ASSERT_EQ(run_evenorm(apply(), strict).status, 0);
    EXPECT_EQ(fs::status(folder / "y.npy").permissions(), permissions);
  }
  ASSERT_EQ(run_evenorm({"apply", folder / "x.npy", "-o", folder / "new.npy"}, strict).status, 0);
  EXPECT_EQ(fs::status(folder / "new.npy").permissions(), fs::perms(0600));
}

TEST_F(CliFiles, LinksAndPermissionsOfTheTargetStay) {
  fs::create_symlink("y.npy", folder / "link.npy");
  fs::permissions(folder / "y.npy", fs::perms(0600));
  ASSERT_EQ(run_evenorm({"apply", folder / "x.npy", "-o", folder / "link.npy"}).status, 0);
  EXPECT_TRUE(fs::is_symlink(folder / "link.npy"));
  EXPECT_EQ(fs::status(folder / "y.npy").permissions(), fs::perms(0600));
  EXPECT_THAT(read_file(folder / "y.npy"), HasSubstr("NUMPY"));
}

}  // namespace
}  // namespace evenorm

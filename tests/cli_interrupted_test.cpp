// `evenorm apply` interrupted by signals, shrinking inputs and full disks: existing files stay unchanged. Also the
// progress line.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "support/program.hpp"

namespace evenorm::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kPiece = std::size_t{16} << 20;  // bytes read at once (cli/normalize.hpp)
constexpr int kPieces = 4;

void sleep_ms(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

class CliInterrupted : public ::testing::Test {
 protected:
  CliInterrupted() {
    write_file(folder / "y.npy", "old");
    EXPECT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
    EXPECT_EQ(stat((folder / "y.npy").c_str(), &before), 0);
  }

  void expect_untouched() const {
    struct stat after {};
    ASSERT_EQ(stat((folder / "y.npy").c_str(), &after), 0);
    EXPECT_EQ(after.st_ino, before.st_ino);
    EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    EXPECT_EQ(read_file(folder / "y.npy"), "old");
  }

  // Writes some pieces of a tensor of kPieces into the pipe, and returns with the pipe open.
  int feed(int pieces, int pause_ms) const {
    const int fd = open((folder / "in").c_str(), O_WRONLY);
    const std::string header = npy_bytes_of("<f4", "(" + std::to_string(kPieces * kPiece / 4096) + ", 1024)", "");
    EXPECT_EQ(write(fd, header.data(), header.size()), static_cast<ssize_t>(header.size()));
    for (int i = 0; i < pieces; ++i) {
      if (i > 0) sleep_ms(pause_ms);
      const std::string zeros(kPiece, '\0');
      EXPECT_EQ(write(fd, zeros.data(), zeros.size()), static_cast<ssize_t>(zeros.size()));
    }
    return fd;
  }

  void wait_for_temporary(const std::vector<std::string>& names) const {
    wait_until([&] { return folder.names().size() > names.size(); });
    EXPECT_EQ(folder.names().size(), names.size() + 1);
  }

  TemporaryFolder folder;
  struct stat before {};
};

// A pseudo-terminal for standard error.
class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) throw std::runtime_error("no terminal");
    name_ = ptsname(master_);
    slave_ = open(name_.c_str(), O_RDWR | O_NOCTTY);  // keeps output that was written before the last writer closes
    fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    close(slave_);
    close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  const std::string& name() const { return name_; }

  // The output since the last call. A mark written after the program has ended shows that all output has arrived.
  std::string shown() {
    constexpr std::string_view kMark = "\x01";
    if (write(slave_, kMark.data(), kMark.size()) != 1) throw std::runtime_error("the terminal accepts no data");
    wait_until_shown(kMark);
    std::string text = std::exchange(shown_, {});
    return text.substr(0, text.find(kMark));
  }
  void wait_until_shown(std::string_view text) {
    wait_until([&] {
      look();
      return shown_.find(text) != std::string::npos;
    });
  }

 private:
  void look() {
    std::string text(1 << 16, '\0');
    const ssize_t got = read(master_, text.data(), text.size());
    if (got > 0) shown_.append(text, 0, static_cast<std::size_t>(got));
  }

  int master_, slave_ = -1;
  std::string name_;
  std::string shown_;
};

TEST_F(CliInterrupted, SignalsBetweenPiecesKeepTheOldOutput) {
  const auto names = folder.names();
  // SIGSEGV, SIGBUS and SIGFPE take the path of SIGILL, but sanitizers handle them themselves.
  for (const int signal :
       {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGALRM, SIGUSR1,  SIGUSR2,  SIGABRT,   SIGVTALRM,
        SIGPROF, SIGIO,   SIGPWR, SIGILL,  SIGTRAP, SIGSYS,  SIGRTMIN, SIGRTMAX, SIGSTKFLT, SIGKILL}) {
    ProgramSetting interrupted{.in_path = folder / "in"};
    interrupted.while_running = [&](pid_t child) {
      const int fd = feed(2, 0);
      wait_for_temporary(names);
      kill(child, signal);
      close(fd);
    };
    const ProgramRun run = run_evenorm({"apply", "-", "-o", folder / "y.npy"}, interrupted);
    EXPECT_EQ(run.signal, signal);
    EXPECT_EQ(run.err, "");
    expect_untouched();
    EXPECT_EQ(folder.names().size(), names.size() + (signal == SIGKILL ? 1 : 0));
  }
}

TEST_F(CliInterrupted, AnInputThatShrinksKeepsTheOldOutput) {
  write_zeros(folder / "x.npy", kPieces * kPiece / 4096, 1024);
  ASSERT_EQ(mkfifo((folder / "mean").c_str(), 0600), 0);
  ProgramSetting shrinking;
  const auto names = folder.names();
  shrinking.while_running = [&](pid_t) {
    // Once its temporary file exists, the program has seen the size of x. It reads x once the pipe for the mean is
    // open.
    wait_for_temporary(names);
    fs::resize_file(folder / "x.npy", fs::file_size(folder / "x.npy") - (kPieces - 1) * kPiece + 4096);
    const int fd = open((folder / "mean").c_str(), O_RDONLY);
    char bytes[1 << 16];
    while (read(fd, bytes, sizeof bytes) > 0) continue;
    close(fd);
  };
  expect_refused({"apply", folder / "x.npy", "-o", folder / "y.npy", "--mean", folder / "mean"},
                 "x.npy shrank while it was read: it ends at byte 16,781,440, but had 67,108,992 bytes", shrinking);
  expect_untouched();
  EXPECT_EQ(folder.names(), names);
}

// Mounts a file system of 1 MiB if this process may do so.
TEST_F(CliInterrupted, AFullDiskKeepsTheOldOutput) {
  const std::string disk = folder / "disk";
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "no file system can be mounted here; CliFiles.ReportsAFileSizeLimitInOneLine is similar";
  }
  write_file(disk + "/y.npy", "old");
  for (const char* order : {"False", "True"}) {
    write_file(folder / "x.npy",
               npy_bytes(std::string("{'descr': '<f4', 'fortran_order': ") + order + ", 'shape': (1024, 1024)}",
                         std::string(4 << 20, '\0')));
    expect_refused({"apply", folder / "x.npy", "-o", disk + "/y.npy"},
                   "y.npy: cannot be written: No space left on device");
    EXPECT_EQ(read_file(disk + "/y.npy"), "old");
    EXPECT_EQ(std::distance(fs::directory_iterator(disk), {}), 1);
  }
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

TEST_F(CliInterrupted, ShowsAndClearsProgressOnATerminal) {
  Terminal terminal;
  ProgramSetting slow{.in_path = folder / "in", .err_path = terminal.name()};
  slow.while_running = [&](pid_t) { close(feed(kPieces, 300)); };
  EXPECT_EQ(run_evenorm({"apply", "-", "-o", "/dev/null"}, slow).status, 0);
  const std::string shown = terminal.shown();
  EXPECT_THAT(shown, HasSubstr("[###############.....]  75 %  "));
  EXPECT_THAT(shown, HasSubstr(" GB/s  "));
  EXPECT_THAT(shown, HasSubstr(" s left"));
  EXPECT_THAT(shown, EndsWith("\r\x1b[K"));
  EXPECT_THAT(shown, Not(HasSubstr("\n")));
}

// x is read at once, and dy as it arrives.
TEST_F(CliInterrupted, ShowsAndClearsProgressOfGradOnATerminal) {
  write_zeros(folder / "x.npy", kPieces * kPiece / 4096, 1024);
  Terminal terminal;
  ProgramSetting slow{.in_path = folder / "in", .err_path = terminal.name()};
  slow.while_running = [&](pid_t) { close(feed(kPieces, 300)); };
  EXPECT_EQ(run_evenorm({"grad", folder / "x.npy", "-", "-o", "/dev/null"}, slow).status, 0);
  const std::string shown = terminal.shown();
  EXPECT_THAT(shown, HasSubstr("[#############.......]  67 %  "));  // both are read, and dx is still to be written
  EXPECT_THAT(shown, EndsWith("\r\x1b[K"));
}

TEST_F(CliInterrupted, ShowsNoProgressForShortWorkOrWhenQuietOrInAPipe) {
  Terminal terminal;
  ProgramSetting setting{.in_path = folder / "in", .err_path = terminal.name()};
  write_file(folder / "short", npy_bytes_of("<f4", "(4, 4)", std::string(64, '\0')));
  EXPECT_EQ(run_evenorm({"apply", folder / "short", "-o", "/dev/null"}, {.err_path = terminal.name()}).status, 0);
  EXPECT_EQ(terminal.shown(), "");
  setting.while_running = [&](pid_t) { close(feed(kPieces, 300)); };
  EXPECT_EQ(run_evenorm({"apply", "-", "-o", "/dev/null", "--quiet"}, setting).status, 0);
  EXPECT_EQ(terminal.shown(), "");
  setting.err_path.clear();
  EXPECT_EQ(run_evenorm({"apply", "-", "-o", "/dev/null"}, setting).err, "");
}

TEST_F(CliInterrupted, ClearsTheProgressLineAfterASignalAndAfterAnError) {
  const auto names = folder.names();
  Terminal terminal;
  ProgramSetting setting{.in_path = folder / "in", .err_path = terminal.name()};
  setting.while_running = [&](pid_t child) {
    const int fd = feed(3, 300);
    terminal.wait_until_shown(" %  ");
    kill(child, SIGINT);
    close(fd);
  };
  EXPECT_EQ(run_evenorm({"apply", "-", "-o", folder / "y.npy"}, setting).signal, SIGINT);
  const std::string shown = terminal.shown();
  EXPECT_THAT(shown, HasSubstr(" %  "));
  EXPECT_THAT(shown, EndsWith("\r\x1b[K"));
  setting.while_running = [&](pid_t) {
    const int fd = feed(3, 300);
    terminal.wait_until_shown(" %  ");
    close(fd);
  };
  EXPECT_EQ(run_evenorm({"apply", "-", "-o", folder / "y.npy"}, setting).status, 2);
  EXPECT_THAT(terminal.shown(), HasSubstr("\r\x1b[Kevenorm: standard input ends at byte 50,331,776"));
  expect_untouched();
  EXPECT_EQ(folder.names(), names);
}

}  // namespace
}  // namespace evenorm::testing

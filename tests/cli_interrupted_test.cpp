// Commands interrupted by signals and shrinking inputs: existing files stay unchanged. Also the progress line.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "support/cli.hpp"

namespace evenorm::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;

constexpr std::size_t kPiece = std::size_t{16} << 20;  // bytes read at once (cli/normalize.hpp)
constexpr int kPieces = 4;

class CliInterrupted : public InFolder {
 protected:
  CliInterrupted() {
    for (const char* name : kOutputs) write(name, "old");
    EXPECT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  }

  // Writes some pieces of a tensor of kPieces into the pipe, and returns with the pipe open.
  int feed(int pieces, int pause_ms = 300) const {
    const int fd = open((folder / "in").c_str(), O_WRONLY);
    const std::string header = npy_bytes_of("<f4", kShape, "");
    EXPECT_EQ(::write(fd, header.data(), header.size()), static_cast<ssize_t>(header.size()));
    for (int i = 0; i < pieces; ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      const std::string zeros(kPiece, '\0');
      EXPECT_EQ(::write(fd, zeros.data(), zeros.size()), static_cast<ssize_t>(zeros.size()));
    }
    return fd;
  }
  void write_x() const { write_zeros(folder / "x.npy", kShape, kPieces * kPiece / sizeof(float)); }

  static constexpr const char *kOutputs[] = {"y.npy", "dw.npy", "db.npy"}, *kShape = "(16384, 1024)";
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

// apply has one temporary file, and grad one for each output.
TEST_F(CliInterrupted, SignalsBetweenPiecesKeepTheOldOutputs) {
  write_x();
  const std::string apply = "apply - -o y.npy", grad = "grad x.npy - -o y.npy --dweight dw.npy --dbias db.npy";
  const auto before = folder.state();
  const auto interrupt = [&](const std::string& line, int signal) {
    ProgramSetting interrupted{.in_path = folder / "in"};
    interrupted.while_running = [&](pid_t child) {
      const int fd = feed(2, 0);
      wait_until([&] { return folder.names().size() == before.size() + (line == grad ? 3 : 1); });
      kill(child, signal);
      close(fd);
    };
    const ProgramRun run = run_line(line, interrupted);
    EXPECT_EQ(run.signal, signal);
    EXPECT_EQ(run.err, "");
  };
  // SIGSEGV, SIGBUS and SIGFPE take the path of SIGILL, but sanitizers handle them themselves.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGALRM, SIGUSR1, SIGUSR2, SIGABRT, SIGVTALRM,
                           SIGPROF, SIGIO, SIGPWR, SIGILL, SIGTRAP, SIGSYS, SIGRTMIN, SIGRTMAX, SIGSTKFLT}) {
    interrupt(apply, signal);
    EXPECT_EQ(folder.state(), before) << signal;
  }
  for (const int signal : {SIGINT, SIGTERM}) {
    interrupt(grad, signal);
    EXPECT_EQ(folder.state(), before) << signal;
  }
  interrupt(apply, SIGKILL);
  EXPECT_EQ(folder.names().size(), before.size() + 1);
  for (const char* name : kOutputs) EXPECT_EQ(read(name), "old");
}

TEST_F(CliInterrupted, AnInputThatShrinksKeepsTheOldOutput) {
  write_x();
  ASSERT_EQ(mkfifo((folder / "mean").c_str(), 0600), 0);
  const auto names = folder.names();
  ProgramSetting shrinking;
  shrinking.while_running = [&](pid_t) {
    // Once its temporary file exists, the program has seen the size of x. It reads x once the pipe for the mean is
    // open.
    wait_until([&] { return folder.names().size() == names.size() + 1; });
    fs::resize_file(folder / "x.npy", fs::file_size(folder / "x.npy") - (kPieces - 1) * kPiece + 4096);
    (void)read("mean");
  };
  expect_refused(words_of("apply x.npy -o y.npy --mean mean"),
                 "x.npy shrank while it was read: it ends at byte 16,781,440, but had 67,108,992 bytes",
                 here(shrinking));
  EXPECT_EQ(read("y.npy"), "old");
  EXPECT_EQ(folder.names(), names);
}

// grad reads x at once, and dy as it arrives.
TEST_F(CliInterrupted, ShowsAndClearsProgressOnATerminal) {
  write_x();
  Terminal terminal;
  ProgramSetting slow{.in_path = folder / "in", .err_path = terminal.name()};
  slow.while_running = [&](pid_t) { close(feed(kPieces)); };
  for (const auto& [line, bar] : {std::pair{"apply - -o /dev/null", "[###############.....]  75 %  "},
                                  // Both are read, and dx is still to be written.
                                  {"grad x.npy - -o /dev/null", "[#############.......]  67 %  "}}) {
    EXPECT_EQ(run_line(line, slow).status, 0);
    const std::string shown = terminal.shown();
    for (const char* part : {bar, " GB/s  ", " s left"}) EXPECT_THAT(shown, HasSubstr(part));
    EXPECT_THAT(shown, EndsWith("\r\x1b[K"));
    EXPECT_THAT(shown, Not(HasSubstr("\n")));
  }
}

TEST_F(CliInterrupted, ShowsNoProgressForShortWorkOrWhenQuietOrInAPipe) {
  Terminal terminal;
  ProgramSetting setting{.in_path = folder / "in", .err_path = terminal.name()};
  write("short", "(4, 4)", Floats(16));
  done("apply short -o /dev/null", {.err_path = terminal.name()});
  EXPECT_EQ(terminal.shown(), "");
  setting.while_running = [&](pid_t) { close(feed(kPieces)); };
  done("apply - -o /dev/null --quiet", setting);
  EXPECT_EQ(terminal.shown(), "");
  setting.err_path.clear();
  done("apply - -o /dev/null", setting);
}

TEST_F(CliInterrupted, ClearsTheProgressLineAfterASignalAndAfterAnError) {
  const auto before = folder.state();
  Terminal terminal;
  for (const int signal : {SIGINT, 0}) {  // 0: the input ends early
    ProgramSetting setting{.in_path = folder / "in", .err_path = terminal.name()};
    setting.while_running = [&](pid_t child) {
      const int fd = feed(3);
      terminal.wait_until_shown(" %  ");
      kill(child, signal);
      close(fd);
    };
    const ProgramRun run = run_line("apply - -o y.npy", setting);
    EXPECT_TRUE(signal == 0 ? run.status == 2 : run.signal == signal) << run.status << ' ' << run.signal;
    const std::string shown = terminal.shown();
    EXPECT_THAT(shown, HasSubstr(" %  "));
    EXPECT_TRUE(signal == 0 || shown.ends_with("\r\x1b[K")) << shown;
    EXPECT_THAT(shown, HasSubstr(signal != 0 ? "\r\x1b[K" : "\r\x1b[Kevenorm: standard input ends at byte 50,331,776"));
  }
  EXPECT_EQ(folder.state(), before);
}

}  // namespace
}  // namespace evenorm::testing

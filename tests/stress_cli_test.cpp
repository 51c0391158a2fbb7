// `evenorm apply` with signals at any moment, with interrupted system calls, and with several runs on one target.
// Each output is complete: the old one or the new one. Also with each allocation failing in turn.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "cli/commands.hpp"
#include "support/cli.hpp"
#include "support/memory.hpp"

namespace evenorm::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCols = 1024, kRows = 2048;

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

const std::string kLine = "apply x.npy -o y.npy --mean mean.npy --threads 2";

class CliStress : public InFolder {
 protected:
  CliStress() {
    write_input("x.npy", 7);
    write_old();
  }

  void write_input(const char* name, std::size_t period) const {
    Floats x(kRows * kCols);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % period);
    write(name, "(2048, 1024)", x);
  }
  void write_old() const {
    for (const char* name : {"y.npy", "mean.npy"}) write(name, "old");
  }
  std::string result_of(const std::string& name) const {
    done("apply " + name + " -o result");
    std::string result = read("result");
    fs::remove(folder / "result");
    return result;
  }
};

TEST_F(CliStress, SignalsAtAnyMomentLeaveWholeOutputs) {
  // The first run may be slow, and its time would delay signals until others are over.
  double seconds = kCols;
  for (int i = 0; i < 4; ++i) seconds = std::min(seconds, run_line(kLine).seconds);
  const std::string y = read("y.npy"), mean = read("mean.npy");
  for (const char* name : {"out", "err"}) write(name, "");  // they exist, however early a signal arrives
  const auto names = folder.names();
  contracts::Random random(1);
  int interrupted = 0;
  for (int i = 0; i < 40; ++i) {
    const int signal = std::array{SIGINT, SIGTERM, SIGHUP, SIGKILL}[static_cast<std::size_t>(i) % 4];
    write_old();
    ProgramSetting setting{.out_path = folder / "out", .err_path = folder / "err"};
    setting.while_running = [&](pid_t child) {
      sleep_for(random.uniform() * seconds);
      kill(child, signal);
    };
    const ProgramRun run = run_line(kLine, setting);
    EXPECT_TRUE(run.signal == signal || run.status == 0) << run.signal << ", " << run.status;
    EXPECT_EQ(read("err"), "");
    const std::string y_now = read("y.npy"), mean_now = read("mean.npy");
    EXPECT_TRUE(y_now == "old" || y_now == y) << strsignal(signal);
    EXPECT_TRUE(mean_now == "old" || mean_now == mean) << strsignal(signal);
    EXPECT_TRUE(run.status != 0 || y_now == y);
    if (signal != SIGKILL) {
      EXPECT_EQ(y_now == y, mean_now == mean) << "only one output was replaced: " << strsignal(signal);
    }
    for (const std::string& name : folder.names()) {
      if (signal == SIGKILL && name.starts_with(".evenorm-")) fs::remove(folder / name);
    }
    EXPECT_EQ(folder.names(), names) << strsignal(signal);
    interrupted += run.signal == 0 ? 0 : 1;
  }
  EXPECT_GE(interrupted, 5);
}

std::atomic<int> alarms{0};

// Runs the program's own loops in the child, without exec. A timer interrupts their reads and writes, which often wait
// for the small pipes.
TEST_F(CliStress, RetriesInterruptedSystemCalls) {
  const std::string expected = result_of("x.npy");
  ProgramSetting setting{.input = read("x.npy"), .out_piped = true};
  setting.before_exec = [] {
    struct sigaction action {};
    action.sa_handler = [](int) { ++alarms; };  // without SA_RESTART
    sigaction(SIGALRM, &action, nullptr);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) fcntl(stream, F_SETPIPE_SZ, 4096);
    const itimerval every{{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &every, nullptr);
    const int status = cli::run(Words{"apply", "-", "-o", "-"});
    _exit(status != 0 ? status : alarms < 20 ? 100 : 0);
  };
  EXPECT_TRUE(output_of({}, setting) == expected);
}

TEST_F(CliStress, SeveralRunsWithOneTargetWriteWholeFiles) {
  write_input("other.npy", 11);
  const std::string first = result_of("x.npy"), second = result_of("other.npy");
  ASSERT_NE(first, second);
  const auto names = folder.names();
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0}, looks{0};
  std::thread looking([&] {
    for (; !stop; ++looks) {
      const std::string seen = read("y.npy");
      torn += seen == "old" || seen == first || seen == second ? 0 : 1;
    }
  });
  const auto apply_often = [&](const std::string& name) {
    for (int i = 0; i < 8; ++i) done("apply " + name + " -o y.npy");
  };
  std::thread other([&] { apply_often("other.npy"); });
  apply_often("x.npy");
  other.join();
  stop = true;
  looking.join();
  EXPECT_EQ(torn, 0);
  EXPECT_GT(looks, 0);
  EXPECT_EQ(folder.names(), names);
}

// --- each allocation failing in turn -------------------------------------------------------------------------------

// The command line either prints one line with status 2, or completes everything without that memory. It never writes a
// part of the outputs or leaves files behind. It runs in this process, where allocations can be made to fail. --json is
// not tested: nlohmann-json's destructors allocate, and end the program if they cannot.

// A message about an array states its size.
bool says_that_memory_is_out(const std::string& error) {
  return error == "evenorm: out of memory\n" || error.ends_with(" bytes of memory cannot be allocated\n");
}

class CliStress_Memory_Whole : public InFolder {
 protected:
  CliStress_Memory_Whole() {
    write("x.npy", "(3, 4)", {0, 1, 4, 2, 2, 4, 1, 0, 1, 4, 2, 2});
    write("w.npy", "(4,)", {1, 2, 3, 4});
    write_old();
  }

  void write_old() const {
    for (const char* name : kOutputs) write(name, "old");
  }
  std::array<std::string, 3> outputs() const {
    return {read_file(folder / kOutputs[0]), read_file(folder / kOutputs[1]), read_file(folder / kOutputs[2])};
  }

  struct Result {
    int status = -1;
    bool failed = false;
    long kept = 0;  // allocations that the run did not free
    std::array<std::string, 3> files;
    std::string out, err;
  };
  // Lets the n-th allocation fail, if n is given.
  Result run_captured(const Words& words, std::optional<std::size_t> n = {}, Failing failing = Failing::one) const {
    Result result;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const long live = allocations().live;
    if (n) {
      const FailingAllocation scope(*n, failing);
      result.status = cli::run(words);
      result.failed = FailingAllocation::has_failed();
    } else {
      result.status = cli::run(words);
    }
    result.kept = allocations().live - live;
    result.out = ::testing::internal::GetCapturedStdout();
    result.err = ::testing::internal::GetCapturedStderr();
    result.files = outputs();
    // Times differ between runs.
    if (const std::size_t at = result.out.find("\"seconds\":"); at != std::string::npos) {
      result.out.erase(at, result.out.find(',', at) - at);
    }
    return result;
  }

  // Returns true if there was an n-th allocation.
  bool run_failing(const Words& words, std::size_t n, Failing failing, const Result& expected, const Words& names) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    const Result result = run_captured(words, n, failing);
    EXPECT_EQ(result.kept, 0);
    if (result.status == cli::kDone) {
      survived += result.failed ? 1 : 0;
      EXPECT_EQ(result.files, expected.files);
      EXPECT_EQ(result.out, expected.out);
      write_old();
    } else {
      EXPECT_TRUE(result.failed);
      EXPECT_EQ(result.status, cli::kRefused);
      EXPECT_TRUE(says_that_memory_is_out(result.err)) << result.err;
      EXPECT_EQ(result.files, (std::array<std::string, 3>{"old", "old", "old"}));
    }
    EXPECT_EQ(folder.names(), names);
    return result.failed;
  }

  // `step`: of the first allocations, which build the parser and are similar, only every step-th fails.
  void fail_each(const Words& words, Failing failing, std::size_t step) {
    (void)run_captured(words);  // creates what is only created once
    const long before = allocations().made;
    const Result expected = run_captured(words);
    const auto made = static_cast<std::size_t>(allocations().made - before);
    ASSERT_EQ(expected.status, cli::kDone) << expected.err;
    write_old();
    const Words names = folder.names();
    std::size_t failures = 0;
    for (std::size_t n = 0; !HasFailure(); n += n < made * 3 / 4 ? step : 1) {
      if (!run_failing(words, n, failing, expected, names)) break;
      ++failures;
    }
    EXPECT_GE(failures, 100u);
    RecordProperty("failed_allocations", static_cast<int>(failures));
    RecordProperty("survived", survived);
  }

  static constexpr const char* kOutputs[] = {"y.npy", "mean.npy", "rstd.npy"};
  int survived = 0;
};

TEST_F(CliStress_Memory_Whole, KeepsTheOldOutputs) {
  const Words apply{"apply",  folder / "x.npy",    "-o",     folder / "y.npy",   "--weight", folder / "w.npy",
                    "--mean", folder / "mean.npy", "--rstd", folder / "rstd.npy"};
  // dx in place of y, and so on. dx has another type than x, so it has its own memory.
  const Words grad = Words{"grad", folder / "x.npy", folder / "x.npy", "-o", folder / "y.npy", "--dtype", "bf16"} +
                     Words{"--weight", folder / "w.npy", "--dweight", folder / "mean.npy", "--dbias"} +
                     Words{folder / "rstd.npy"};
  for (const Words& words : {apply, grad}) {
    for (const Failing failing : {Failing::one, Failing::one_and_all_after}) fail_each(words, failing, 7);
  }
}

TEST_F(CliStress_Memory_Whole, FailsWithOneLine) {
  fail_each({"explain", "4 2 8", "--grad", "1 0 -1"}, Failing::one, 11);
  fail_each({"explain", "4 2 8", "--weight", "1.5 1 0.5"}, Failing::one, 7);
  fail_each({"info"}, Failing::one, 7);
}

}  // namespace
}  // namespace evenorm::testing

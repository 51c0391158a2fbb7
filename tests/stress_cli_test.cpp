// `evenorm apply` with signals at any moment, with interrupted system calls, and with several runs on one target.
// Each output is complete: the old one or the new one. Also with each allocation failing in turn.
#include <fcntl.h>
#include <gtest/gtest.h>
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
#include "contracts/inputs.hpp"
#include "support/child.hpp"
#include "support/memory.hpp"
#include "support/program.hpp"

namespace evenorm::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCols = 1024, kRows = 2048;

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class CliStress : public ::testing::Test {
 protected:
  CliStress() {
    write_input("x.npy", 7);
    write_old();
  }

  void write_input(const char* name, std::size_t period) const {
    std::vector<float> x(kRows * kCols);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % period);
    write_f32(folder / name, "(2048, 1024)", x);
  }
  void write_old() const {
    write_file(folder / "y.npy", "old");
    write_file(folder / "mean.npy", "old");
  }
  std::vector<std::string> arguments() const {
    return {"apply", folder / "x.npy", "-o", folder / "y.npy", "--mean", folder / "mean.npy", "--threads", "2"};
  }
  std::string result_of(const char* name) const {
    EXPECT_EQ(run_evenorm({"apply", folder / name, "-o", folder / "result"}).status, 0);
    std::string result = read_file(folder / "result");
    fs::remove(folder / "result");
    return result;
  }
  // The least time of some runs. The first may be slow, and its time would delay signals until others are over.
  double seconds_of_a_quick_run() const {
    double least = kCols;
    for (int i = 0; i < 4; ++i) {
      const ProgramRun run = run_evenorm(arguments());
      EXPECT_EQ(run.status, 0) << run.err;
      least = std::min(least, run.seconds);
    }
    return least;
  }

  TemporaryFolder folder;
};

TEST_F(CliStress, SignalsAtAnyMomentLeaveWholeOutputs) {
  const double seconds = seconds_of_a_quick_run();
  const std::string y = read_file(folder / "y.npy"), mean = read_file(folder / "mean.npy");
  for (const char* name : {"out", "err"}) write_file(folder / name, "");  // they exist, however early a signal arrives
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
    const ProgramRun run = run_evenorm(arguments(), setting);
    EXPECT_TRUE(run.signal == signal || run.status == 0) << run.signal << ", " << run.status;
    EXPECT_EQ(read_file(folder / "err"), "");
    const std::string y_now = read_file(folder / "y.npy"), mean_now = read_file(folder / "mean.npy");
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

// Runs the program's own loops in a child. A timer interrupts its reads and writes, its input pipe fills slowly, and
// its output pipe is emptied slowly.
int apply_under_alarms(int in, int out) {
  struct sigaction action {};
  action.sa_handler = [](int) { ++alarms; };  // without SA_RESTART
  sigaction(SIGALRM, &action, nullptr);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  const itimerval every{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, nullptr);
  const int status = cli::run(std::vector<std::string>{"apply", "-", "-o", "-"});
  return status != 0 ? status : alarms < 20 ? 100 : 0;
}

TEST_F(CliStress, RetriesInterruptedSystemCalls) {
  const std::string x = read_file(folder / "x.npy"), expected = result_of("x.npy");
  int in[2], out[2];
  ASSERT_EQ(pipe2(in, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  std::string got;
  std::thread writer([&] {
    for (std::size_t at = 0; at < x.size();) {
      const ssize_t put = write(in[1], x.data() + at, std::min(x.size() - at, x.size() / 20));
      if (put < 0) break;
      at += static_cast<std::size_t>(put);
      sleep_for(0.01);  // in total ten times as long as the requested alarms need
    }
    close(in[1]);
  });
  std::thread reader([&] {
    std::string bytes(expected.size() / 20, '\0');
    for (ssize_t n = 0; (n = read(out[0], bytes.data(), bytes.size())) > 0; sleep_for(0.0005)) {
      got.append(bytes, 0, static_cast<std::size_t>(n));
    }
  });
  const std::string outcome = outcome_of_child([&] {
    close(in[1]);
    close(out[0]);
    return apply_under_alarms(in[0], out[1]);
  });
  close(in[0]);
  close(out[1]);
  writer.join();
  reader.join();
  close(out[0]);
  EXPECT_EQ(outcome, "");
  EXPECT_TRUE(got == expected);
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
      const std::string seen = read_file(folder / "y.npy");
      torn += seen == "old" || seen == first || seen == second ? 0 : 1;
    }
  });
  const auto apply_often = [&](const char* name) {
    for (int i = 0; i < 8; ++i) EXPECT_EQ(run_evenorm({"apply", folder / name, "-o", folder / "y.npy"}).status, 0);
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

class CliStress_Memory : public ::testing::Test {
 protected:
  CliStress_Memory() {
    write_f32(folder / "x.npy", "(3, 4)", {0, 1, 4, 2, 2, 4, 1, 0, 1, 4, 2, 2});
    write_f32(folder / "w.npy", "(4,)", {1, 2, 3, 4});
    write_old();
  }

  void write_old() const {
    for (const char* name : kOutputs) write_file(folder / name, "old");
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
  TemporaryFolder folder;
  int survived = 0;
};

TEST_F(CliStress_Memory, KeepsTheOldOutputs) {
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

TEST_F(CliStress_Memory, FailsWithOneLine) {
  fail_each({"explain", "4 2 8", "--grad", "1 0 -1"}, Failing::one, 11);
  fail_each({"explain", "4 2 8", "--weight", "1.5 1 0.5"}, Failing::one, 7);
  fail_each({"info"}, Failing::one, 7);
}

}  // namespace
}  // namespace evenorm::testing

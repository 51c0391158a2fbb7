// The command line with a small stack (ulimit -s): it gives the same results and leaves no temporary files.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "support/cli.hpp"
#include "support/sanitized.hpp"

namespace evenorm::testing {
namespace {

void small_stack() {
  const rlimit limit{std::size_t{96} << 10U, std::size_t{96} << 10U};
  setrlimit(RLIMIT_STACK, &limit);
}

class CliStack : public ::testing::Test {
 protected:
  CliStack() {
    std::vector<double> x(std::size_t{8} * 48 * 256);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * i % 1009);
    for (const char* order : {"C", "Fortran"}) {
      write_file(folder / order, npy_bytes_of("<f8", "(8, 48, 256)", bytes_of(x), order[0] == 'F'));
    }
  }
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers need more stack by themselves";
  }

  void expect_the_same(const Words& words, const Words& outputs = {}) const {
    std::vector<std::string> usual;
    const auto names = folder.names();
    for (const bool small : {false, true}) {
      const ProgramRun run = run_evenorm(words, {.before_exec = small ? small_stack : nullptr});
      EXPECT_EQ(run.status, 0) << words[0] << " signal " << run.signal << ' ' << run.err;
      std::vector<std::string> results{run.out};
      for (const std::string& name : outputs) {
        if (run.status == 0) results.push_back(read_file(folder / name));
        std::filesystem::remove(folder / name);
      }
      EXPECT_TRUE(!small || results == usual) << words[0];
      usual = std::move(results);
      EXPECT_EQ(folder.names(), names);
    }
  }

  TemporaryFolder folder;
};

TEST_F(CliStack, TextsAreTheSame) {
  for (const Words& words : {Words{"info"},
                             {"--help"},
                             {"completion", "zsh"},
                             {"manual"},
                             {"explain", "4 2 8", "--grad", "1 0 -1", "--round", "2"},
                             {"explain", "--slips", "--json"},
                             {"explain", folder / "C", "--axes", "1", "--rows", "0,17"}}) {
    expect_the_same(words);
  }
}

TEST_F(CliStack, OutputsAreTheSame) {
  for (const char* order : {"C", "Fortran"}) {
    for (const char* threads : {"1", "3"}) {
      for (const char* axis : {"-1", "1"}) {
        const Words options{"--threads", threads, "--axes", axis, "--dtype", "bf16"};
        expect_the_same(Words{"apply", folder / order, "-o", folder / "y", "--rstd", folder / "r"} + options,
                        {"y", "r"});
        expect_the_same(
            Words{"grad", folder / order, folder / order, "-o", folder / "y", "--dweight", folder / "dw"} + options,
            {"y", "dw"});
      }
    }
  }
}

// True if a thread of another process blocks a signal.
bool blocks(const std::filesystem::path& task, int signal) {
  const std::string status = read_file(task / "status");
  const unsigned long mask = std::stoul(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
  return (mask >> (static_cast<unsigned>(signal) - 1) & 1U) != 0;
}

// The handler must run on the working thread, which can be interrupted safely, to remove the temporary file.
TEST_F(CliStack, SignalsReachTheThreadThatWorks) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const auto names = folder.names();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ProgramSetting interrupted{.before_exec = small_stack};
    interrupted.while_running = [&](pid_t child) {
      wait_until([&] { return folder.names().size() > names.size(); });
      for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(child) + "/task")) {
        EXPECT_EQ(blocks(task, signal), task.path().filename() == std::to_string(child)) << task;
      }
      kill(child, signal);
    };
    const ProgramRun run =
        run_evenorm({"apply", folder / "C", "-o", folder / "y", "--mean", folder / "fifo"}, interrupted);
    EXPECT_EQ(run.signal, signal);
    EXPECT_EQ(folder.names(), names);
  }
}

}  // namespace
}  // namespace evenorm::testing

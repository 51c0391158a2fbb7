// The command line with each allocation failing in turn. It either prints one line with status 2, or completes
// everything without that memory. It never writes a part of the outputs or leaves files behind. It runs in this
// process, where allocations can be made to fail. --json is not tested: nlohmann-json's destructors allocate, and end
// the program if they cannot.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "cli/commands.hpp"
#include "support/memory.hpp"
#include "support/program.hpp"

namespace evenorm::testing {
namespace {

// A message about an array states its size.
bool says_that_memory_is_out(const std::string& error) {
  return error == "evenorm: out of memory\n" || error.ends_with(" bytes of memory cannot be allocated\n");
}

// Redirects standard output and standard error to files during its lifetime.
class Captured {
 public:
  explicit Captured(const TemporaryFolder& folder) {
    std::fflush(nullptr);
    for (std::size_t i = 0; i < 2; ++i) {
      saved_[i] = fcntl(kStreams[i], F_DUPFD_CLOEXEC, 10);
      const int file = open((folder / kNames[i]).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
      dup2(file, kStreams[i]);
      close(file);
    }
  }
  ~Captured() {
    std::fflush(nullptr);
    for (std::size_t i = 0; i < 2; ++i) {
      dup2(saved_[i], kStreams[i]);
      close(saved_[i]);
    }
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  static constexpr const char* kNames[] = {"out", "err"};

 private:
  static constexpr int kStreams[] = {STDOUT_FILENO, STDERR_FILENO};
  std::array<int, 2> saved_{};
};

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
    std::array<std::string, 3> files;
    std::string out, err;
  };
  Result finish(int status) const {
    Result result{status, outputs(), read_file(logs / "out"), read_file(logs / "err")};
    // Times differ between runs.
    if (const std::size_t at = result.out.find("\"seconds\":"); at != std::string::npos) {
      result.out.erase(at, result.out.find(',', at) - at);
    }
    return result;
  }
  Result run_whole(const Words& words) const {
    write_old();
    int status = -1;
    {
      const Captured captured(logs);
      status = cli::run(words);
    }
    return finish(status);
  }

  // Lets the n-th allocation fail. Returns true if there was one.
  bool run_failing(const Words& words, std::size_t n, Failing failing, const Result& expected, const Words& names) {
    const long live = allocations().live;
    int status = -1;
    bool failed = false;
    {
      const Captured captured(logs);
      const FailingAllocation scope(n, failing);
      status = cli::run(words);
      failed = FailingAllocation::has_failed();
    }
    EXPECT_EQ(allocations().live, live) << "allocation " << n;
    const Result result = finish(status);
    if (result.status == cli::kDone) {
      survived += failed ? 1 : 0;
      EXPECT_EQ(result.files, expected.files) << "allocation " << n;
      EXPECT_EQ(result.out, expected.out) << "allocation " << n;
      write_old();
    } else {
      EXPECT_TRUE(failed);
      EXPECT_EQ(result.status, cli::kRefused) << "allocation " << n;
      EXPECT_TRUE(says_that_memory_is_out(result.err)) << result.err << "allocation " << n;
      EXPECT_EQ(result.files, (std::array<std::string, 3>{"old", "old", "old"})) << "allocation " << n;
    }
    EXPECT_EQ(folder.names(), names) << "allocation " << n;
    return failed;
  }

  // `step`: of the first allocations, which build the parser and are similar, only every step-th fails.
  void fail_each(const Words& words, Failing failing, std::size_t step) {
    run_whole(words);  // creates what is only created once
    const long before = allocations().made;
    const Result expected = run_whole(words);
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
  TemporaryFolder folder, logs;
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

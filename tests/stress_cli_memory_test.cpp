// The command line with each allocation failing in turn. It either prints one line with status 2, or completes
// everything without that memory. It never writes a part of the outputs or leaves files behind. It runs in this
// process, where allocations can be made to fail. --json is not tested: nlohmann-json's destructors allocate, and end
// the program if they cannot.
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "cli/commands.hpp"
#include "support/memory.hpp"
#include "support/program.hpp"

namespace evenorm::testing {
namespace {

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

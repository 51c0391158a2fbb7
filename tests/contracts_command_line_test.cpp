// Equal bits through the command line: `evenorm apply` on files gives the digests that the library gives in memory.
#include <gtest/gtest.h>

#include "contracts/digests.hpp"
#include "support/names.hpp"
#include "support/npy.hpp"
#include "support/program.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::doubles_of;
using evenorm::testing::read_npy;
using evenorm::testing::run_evenorm;
using evenorm::testing::TemporaryFolder;
using evenorm::testing::write_npy;
using Words = std::vector<std::string>;

// `evenorm apply` on the case's rows.
Outcome apply(const Operation& op, const CaseData& data, const Words& environment, const Words& more, bool in_place) {
  const TemporaryFolder folder;
  const auto rows = static_cast<std::int64_t>(data.rows), cols = static_cast<std::int64_t>(op.cols);
  const std::string x = folder / "x.npy", y = in_place ? x : folder / "y.npy";
  write_npy(x, data.x, {rows, cols});
  Words arguments{"apply", x, "-o", y, "--rstd", folder / "rstd.npy"};
  const auto add = [&arguments](const Words& words) { arguments.insert(arguments.end(), words.begin(), words.end()); };
  add(more);
  if (op.kind == Kind::rms) add({"--rms"});
  if (op.kind == Kind::layer) add({"--mean", folder / "mean.npy"});
  if (op.zero_centered) add({"--zero-centered"});
  if (op.weight) {
    write_npy(folder / "weight.npy", data.weight, {cols});
    add({"--weight", folder / "weight.npy"});
  }
  if (op.bias) {
    write_npy(folder / "bias.npy", data.bias, {cols});
    add({"--bias", folder / "bias.npy"});
  }
  const auto run = run_evenorm(arguments, {.environment = environment});
  EXPECT_EQ(run.status, 0) << run.err;
  Outcome outcome{read_npy(y), {}, doubles_of(read_npy(folder / "rstd.npy")), true};
  if (op.kind == Kind::layer) outcome.mean = doubles_of(read_npy(folder / "mean.npy"));
  return outcome;
}

class Contract_CommandLine : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_CommandLine, GivesTheSameBits) {
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {1, 33, 768, 5000, 65541}) {
      Operation op = same_type(kind, GetParam(), cols);
      op.zero_centered = cols == 33;
      if (cols == 768) op.weight = op.bias = DType::f32;
      const CaseData data = make_case_data(op);
      const auto expected =
          row_digests(op, run_operation(on_target(runnable_targets()[0]), op, data.x, data.weight, data.bias));
      EXPECT_EQ(row_digests(op, apply(op, data, {}, {}, false)), expected) << op.name();
      EXPECT_EQ(row_digests(op, apply(op, data, {}, {"--threads", "2"}, true)), expected) << op.name();
      for (const internal::Target target : runnable_targets()) {
        const std::string forced = "EVENORM_TARGET=" + std::string(internal::name(target));
        EXPECT_EQ(row_digests(op, apply(op, data, {forced}, {}, false)), expected) << op.name() << forced;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_CommandLine,
                         ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return evenorm::testing::word(test.param); });

TEST(Contract_CommandLine, UnknownTargetsAreRefused) {
  EXPECT_EQ(run_evenorm({"info"}, {.environment = {"EVENORM_TARGET=bogus"}}).status, 2);
}

}  // namespace
}  // namespace evenorm::contracts

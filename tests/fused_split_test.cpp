// The normalised axis split over processes: cut at multiples of 1024 columns, the bits of the whole; cut anywhere else,
// the bounds of the whole.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contracts/accuracy.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"
#include "support/shards.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::runnable_targets;

// No finite number is lost in rows of NaN and infinity, which stay whole.
const Names kRows = {"normal", "mean_1e4", "constant_0.1", "mean_300",         "steps", "zeros",
                     "ramp",   "mean_1e6", "one_ulp_0.1",  "outlier_1e6_at_5", "normal"};

FusedInputs rows_to_split(const FusedOperation& op, std::size_t rows = 11) {
  FusedInputs inputs;
  inputs.x = rows_of(kRows, op.norm.x, rows, op.norm.cols, 1);
  if (rows > 4) inputs.x.set(4 * op.norm.cols + op.norm.cols / 2, std::numeric_limits<double>::quiet_NaN());
  if (rows > 10) inputs.x.set(11 * op.norm.cols - 1, std::numeric_limits<double>::infinity());
  if (op.norm.weight) inputs.weight = contracts::make_weight(*op.norm.weight, op.norm.cols);
  if (op.norm.bias) inputs.bias = contracts::make_bias(*op.norm.bias, op.norm.cols);
  return inputs;
}

void expect_bits_of_the_whole(const FusedOperation& op, const FusedInputs& inputs, const ShardSizes& sizes) {
  const FusedOutcome whole = one_by_one(runnable_targets()[0], op, inputs);
  for (const internal::Target target : runnable_targets()) {
    const std::vector<Moments> moments = joined_moments(target, op, inputs.x, sizes);
    const FusedOutcome outcome = normalised_in_shards(target, op, inputs, sizes, moments);
    EXPECT_EQ(outcome.difference_to(whole), "") << op.name() << " on " << internal::name(target);
    EXPECT_TRUE(outcome.kept_inside) << op.name() << " on " << internal::name(target);
  }
}

class Contract_FusedSplit : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_FusedSplit, OneProcessHasTheBitsOfThePlainNorm) {
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {1, 15, 17, 64, 127, 768, 1023, 1024, 1025, 3000, 12000}) {
      const FusedOperation op{contracts::same_type(kind, GetParam(), cols, cols % 2 == 0)};
      expect_bits_of_the_whole(op, rows_to_split(op), {cols});
    }
  }
}

TEST_P(Contract_FusedSplit, AtEveryMultipleOf1024) {
  constexpr std::size_t kCols = 5 * 1024 + 77;
  for (const Kind kind : kBothKinds) {
    const FusedOperation op{contracts::same_type(kind, GetParam(), kCols)};
    const FusedInputs inputs = rows_to_split(op);
    for (std::size_t cut = 1024; cut < kCols; cut += 1024) expect_bits_of_the_whole(op, inputs, {cut, kCols - cut});
    expect_bits_of_the_whole(op, inputs, {1024, 1024, 1024, 1024, 1024, 77});
  }
}

// Rows that have to be scaled among them, by the largest |x| of all processes.
TEST_P(Contract_FusedSplit, EveryAdversarialRow) {
  constexpr std::size_t kCols = 3 * 1024 + 300;
  for (const std::string_view name : contracts::input_names(GetParam(), kCols)) {
    for (const Kind kind : kBothKinds) {
      for (const double eps : {0.0, 1e-5}) {
        FusedOperation op{contracts::same_type(kind, GetParam(), kCols)};
        op.norm.eps = eps;
        FusedInputs inputs;
        inputs.x = contracts::make_input(name, GetParam(), kCols);
        inputs.weight = contracts::make_weight(GetParam(), kCols);
        inputs.bias = contracts::make_bias(GetParam(), kCols);
        SCOPED_TRACE(name);
        expect_bits_of_the_whole(op, inputs, {2048, kCols - 2048});
        expect_bits_of_the_whole(op, inputs, {1024, 1024, 1024, 300});
      }
    }
  }
}

// One block has the row's largest |x|, at each place; beside it others have magnitudes that f32 does not hold, once the
// row is scaled: by which power of two shows.
TEST_P(Contract_FusedSplit, OneBlockOfAnotherMagnitude) {
  if (GetParam() == DType::f16) GTEST_SKIP() << "no row of f16 is scaled up or down";
  contracts::Random random(7);
  constexpr std::size_t kCols = 3 * 1024 + 5;
  for (int round = 0; round < 40; ++round) {
    std::vector<double> values(kCols);
    const std::size_t odd = random.below(4) * 1024;
    const int large = round % 2 == 0 ? 127 : -90;
    for (std::size_t i = 0; i < kCols; ++i) {
      const int exponent =
          i / 1024 == odd / 1024 ? large : large - static_cast<int>(random.below(large > 0 ? 253 : 59));
      values[i] = std::ldexp(random.uniform() < 0.5 ? -1 - random.uniform() : 1, exponent);
    }
    for (const Kind kind : kBothKinds) {
      FusedOperation op{contracts::same_type(kind, GetParam(), kCols, false)};  // a bias would hide tiny results
      op.norm.eps = 0;
      FusedInputs inputs;
      inputs.x = Array(GetParam(), values);
      expect_bits_of_the_whole(op, inputs, {1024, 2048, 5});
    }
  }
}

// The largest |x| of a row that is scaled is in a block that is not out of range by itself.
TEST_P(Contract_FusedSplit, LargestInABlockOfUsualMagnitude) {
  if (GetParam() == DType::f16 || GetParam() == DType::f64) GTEST_SKIP() << "of f32 arithmetic";
  constexpr std::size_t kCols = 3 * 1024;
  std::vector<double> values(kCols, 0x1.7p100);
  std::fill_n(values.begin() + 1024, 1024, 0x1p-20);
  values[1030] = 0x1.8p104;
  const FusedOperation op{contracts::same_type(Kind::rms, GetParam(), kCols, false)};
  FusedInputs inputs;
  inputs.x = Array(GetParam(), values);
  for (std::size_t i = 1100; i < 1400; ++i) inputs.x.set(i, std::ldexp(1 + static_cast<double>(i) / 4096, -44));
  expect_bits_of_the_whole(op, inputs, {1024, 1024, 1024});
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedSplit, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// The second half's arithmetic is f64 because of y, weight or bias: the first half is told.
TEST(Contract_FusedSplit, MixturesOfTypes) {
  using enum DType;
  for (const contracts::Operation& norm : {contracts::Operation{Kind::layer, f32, f64, f32, f32, true, 1e-5, 2500},
                                           contracts::Operation{Kind::rms, bf16, f32, f64, {}, false, 1e-5, 2500},
                                           contracts::Operation{Kind::layer, f16, f16, {}, f64, false, 1e-5, 2500},
                                           contracts::Operation{Kind::layer, f64, bf16, f32, {}, false, 1e-5, 2500},
                                           contracts::Operation{Kind::layer, bf16, f32, f32, f16, false, 1e-5, 2500}}) {
    const FusedOperation op{norm};
    expect_bits_of_the_whole(op, rows_to_split(op), {1024, 1476});
  }
}

// 14 parts: each process joins its own first, 2^k of them from a multiple of 2^k on.
TEST(Contract_FusedSplit, SubtreesJoinedFirst) {
  constexpr std::size_t kCols = 13 * 1024 + 7;
  for (const Kind kind : kBothKinds) {
    for (const DType type : {DType::f32, DType::f64}) {
      const FusedOperation op{contracts::same_type(kind, type, kCols)};
      const FusedInputs inputs = rows_to_split(op);
      for (const internal::Target target : runnable_targets()) {
        const std::vector<Moments> expected = joined_moments(target, op, inputs.x, {kCols});
        for (const std::size_t subtree : {2048, 4096, 8192}) {
          ShardSizes sizes(kCols / subtree, subtree);
          sizes.push_back(kCols % subtree);
          EXPECT_TRUE(same_bits(joined_moments(target, op, inputs.x, sizes, true), expected))
              << op.name() << ", " << subtree << " columns each, on " << internal::name(target);
        }
      }
    }
  }
}

// --- other cuts -----------------------------------------------------------------------------------------------------

void expect_within_bounds(const FusedOperation& op, const FusedInputs& inputs, const ShardSizes& sizes,
                          const std::string& what) {
  const contracts::Expected expected(op.norm, inputs.x, inputs.weight, inputs.bias);
  const std::vector<Moments> first = joined_moments(runnable_targets()[0], op, inputs.x, sizes);
  for (const internal::Target target : runnable_targets()) {
    const std::vector<Moments> moments = joined_moments(target, op, inputs.x, sizes);
    EXPECT_TRUE(same_bits(moments, first)) << what << ", " << op.name() << " on " << internal::name(target);
    const FusedOutcome outcome = normalised_in_shards(target, op, inputs, sizes, moments);
    const contracts::Errors errors =
        expected.errors_of(outcome.y, 0, outcome.mean.empty() ? 0 : outcome.mean[0], outcome.rstd[0]);
    EXPECT_TRUE(errors.within_limits(op.norm) && outcome.kept_inside)
        << what << ", " << op.name() << " on " << internal::name(target) << ": y " << errors.output << ", rstd "
        << errors.rstd << ", mean " << errors.mean;
  }
}

class Contract_FusedSplitAccuracy : public ::testing::TestWithParam<std::tuple<DType, std::size_t>> {};

TEST_P(Contract_FusedSplitAccuracy, EveryAdversarialRow) {
  const auto [type, cols] = GetParam();
  const ShardSizes sizes = cols < 100 ? ShardSizes{1, 2, cols - 3} : ShardSizes{1, cols / 3, 1025, cols * 2 / 3 - 1026};
  for (const std::string_view name : contracts::input_names(type, cols)) {
    for (const Kind kind : kBothKinds) {
      FusedOperation op{contracts::same_type(kind, type, cols)};
      FusedInputs inputs;
      inputs.x = contracts::make_input(name, type, cols);
      inputs.weight = contracts::make_weight(type, cols);
      inputs.bias = contracts::make_bias(type, cols);
      expect_within_bounds(op, inputs, sizes, std::string(name));
      expect_within_bounds(op, inputs, {cols}, std::string(name) + " whole");
      if (cols > 100) continue;
      for (const double eps : {0.0, 1e-30, 1e80}) {  // from 2^251 on every row of f32 is scaled
        op.norm.eps = eps;
        expect_within_bounds(op, inputs, sizes, std::string(name) + ", eps " + std::to_string(eps));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndCols, Contract_FusedSplitAccuracy,
                         ::testing::Combine(::testing::ValuesIn(kAllTypes),
                                            ::testing::Values(std::size_t{31}, std::size_t{3300})),
                         [](const auto& test) {
                           return word(std::get<0>(test.param)) + "_Cols" + std::to_string(std::get<1>(test.param));
                         });

// Processes whose columns are of other magnitudes: scaled parts beside plain ones, zeros beside either.
TEST(Contract_FusedSplitAccuracy, ProcessesOfOtherMagnitudes) {
  const double magnitudes[] = {0, 1e-320, 1e-300, 1e-200, 1, 1e140, 1e200, 1e307};
  constexpr std::size_t kShard = 200;
  for (const double left : magnitudes) {
    for (const double right : magnitudes) {
      contracts::Random random(5);
      std::vector<double> values(3 * kShard);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = (i < kShard ? left : i < 2 * kShard ? right : left / 2 + right / 2) * (2 * random.uniform() - 0.7);
      }
      for (const Kind kind : kBothKinds) {
        for (const double eps : {0.0, 1e-5}) {
          FusedOperation op{contracts::same_type(kind, DType::f64, 3 * kShard, false)};
          op.norm.eps = eps;
          FusedInputs inputs;
          inputs.x = Array(DType::f64, values);
          const std::string what = std::to_string(left) + " beside " + std::to_string(right);
          expect_within_bounds(op, inputs, {kShard, kShard, kShard}, what);
        }
      }
    }
  }
}

}  // namespace
}  // namespace evenorm::testing

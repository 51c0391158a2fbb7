// y of type i8: the integers and scales equal those that plain loops compute from the y of a plain pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "contracts/fp_mode.hpp"
#include "run/schedule.hpp"
#include "support/fused.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::runnable_targets;

FusedOperation quantising(Kind kind, DType x, std::size_t cols, bool parameters, double given_scale = 0) {
  FusedOperation op{contracts::same_type(kind, x, cols, parameters)};
  op.norm.y = DType::i8;
  op.given_scale = given_scale;
  return op;
}

class Contract_FusedInt8 : public ::testing::TestWithParam<DType> {};

// Rows that fit into scratch, and longer ones. The limit is 5000 to 14000 columns, by type and other uses of scratch.
TEST_P(Contract_FusedInt8, QuantisesTheNormsResult) {
  std::size_t turn = 0;
  for (const Kind kind : kBothKinds) {
    for (const bool residual : {false, true}) {
      for (const std::size_t cols : {1, 15, 16, 17, 64, 127, 768, 1023, 1024, 1025, 3000, 7000, 12000, 14000}) {
        FusedOperation op = quantising(kind, GetParam(), cols, turn % 2 == 0, turn % 3 == 2 ? 0.03 : 0);
        op.norm.zero_centered = op.norm.weight && turn % 5 == 0;
        if (residual) op.residual = GetParam();
        expect_fused_is_composed(op, fused_inputs(op, cols > 2000 ? 3 : 17, turn * 3));
        ++turn;
      }
    }
  }
}

// Dozens of rows fill pipeline stages of narrow rows, of few rows, and of other rows. Scaled rows and second passes
// interrupt them.
TEST_P(Contract_FusedInt8, QuantisesManyShortRows) {
  std::size_t turn = 0;
  for (const Kind kind : kBothKinds) {
    for (const std::size_t cols : {8, 32, 64, 100, 128, 250, 768, 1024}) {
      FusedOperation op = quantising(kind, GetParam(), cols, turn % 3 != 0, turn % 4 == 1 ? 0.03 : 0);
      expect_fused_is_composed(op, normal_inputs(op, 59));
      expect_fused_is_composed(op, fused_inputs(op, 59, turn));
      ++turn;
    }
  }
}

// Short runs of rows at even distances, one of which is rare.
TEST(Contract_FusedInt8, TakesRowsAtUnevenDistances) {
  constexpr std::size_t kRows = 15, kCols = 33;
  const std::int64_t shape[] = {5, 3, kCols}, apart[] = {160, 40, 1}, rows[] = {5, 3};
  std::vector<float> dense(kRows * kCols), x(std::size_t{5} * 160);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const std::size_t row = i / kCols;
    dense[i] = (static_cast<float>(i * 7 % 23) - 11) * (row == 7 ? 1e35F : 1);
    x[row / 3 * 160 + row % 3 * 40 + i % kCols] = dense[i];
  }
  for (const internal::Target target : runnable_targets()) {
    std::vector<std::int8_t> y[2] = {std::vector<std::int8_t>(dense.size()), std::vector<std::int8_t>(dense.size())};
    std::vector<float> scale[2] = {std::vector<float>(kRows), std::vector<float>(kRows)};
    for (const std::size_t way : {0, 1}) {
      Forward f;
      f.x = {way == 0 ? dense.data() : x.data(), DType::f32, shape,
             way == 0 ? std::span<const std::int64_t>() : std::span<const std::int64_t>(apart)};
      f.y = {y[way].data(), DType::i8, shape};
      f.normalized_shape = std::span(shape).last(1);
      f.scale = {scale[way].data(), DType::f32, rows};
      internal::run_on(target, f);
    }
    EXPECT_EQ(y[0], y[1]) << internal::name(target);
    EXPECT_EQ(scale[0], scale[1]) << internal::name(target);
  }
}

// A row longer than scratch needs two passes, so x and the residual must stay unchanged until the second.
TEST_P(Contract_FusedInt8, QuantisesLongRowsInPlace) {
  FusedOperation op = quantising(Kind::layer, GetParam(), 14100, true);
  op.residual = GetParam();
  const FusedInputs inputs = fused_inputs(op, 17);
  for (const Place place : {Place::of_x, Place::of_residual}) {
    expect_fused_is_composed(op, inputs, FusedWay{"in place", {.sum = place}, {}});
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedInt8, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// In f64 arithmetic the quantised values are f64.
TEST(Contract_FusedInt8, QuantisesMixturesOfTypes) {
  using enum DType;
  const contracts::Operation norms[] = {{Kind::layer, f32, i8, f64, {}, false, 1e-5, 0},
                                        {Kind::rms, bf16, i8, f32, f64, false, 1e-5, 0},
                                        {Kind::layer, f16, i8, f32, bf16, true, 1e-5, 0},
                                        {Kind::layer, f64, i8, bf16, f16, false, 1e-5, 0}};
  for (contracts::Operation norm : norms) {
    for (const std::size_t cols : {17, 129, 1100, 9000}) {
      norm.cols = cols;
      for (const std::optional<DType> residual : {std::optional<DType>(), std::optional(f32), std::optional(f64)}) {
        FusedOperation op{norm};
        op.residual = residual;
        op.given_scale = cols == 129 ? 0.02 : 0;
        expect_fused_is_composed(op, fused_inputs(op, cols > 1000 ? 3 : 17, cols), 2);
      }
    }
  }
}

// --- numbers computed by hand --------------------------------------------------------------------------------------

// RMS norm of alternating +1 and -1 with eps = 0 returns them unchanged, so y = +-weight.
struct Weights {
  FusedOperation op;
  FusedInputs inputs;

  Weights(DType type, const std::vector<double>& weight, double given_scale)
      : op(quantising(Kind::rms, type, weight.size(), false, given_scale)) {
    op.norm.weight = type;
    op.norm.eps = 0;
    inputs.x = contracts::make_input("alternating", type, weight.size());
    inputs.weight = Array(type, weight);
  }

  std::vector<int> run_on(internal::Target target, float* scale = nullptr) const {
    const FusedOutcome outcome = run_fused(contracts::on_target(target), op, inputs);
    std::vector<int> integers(outcome.y.size());
    for (std::size_t i = 0; i < integers.size(); ++i) {
      integers[i] = static_cast<std::int8_t>(outcome.y.data()[i]);
    }
    if (scale != nullptr) std::memcpy(scale, outcome.scale.data(), sizeof *scale);
    return integers;
  }
};

using Integers = std::vector<int>;

template <class Number>
std::vector<Number> repeated(const std::vector<Number>& numbers, std::size_t times) {
  std::vector<Number> all;
  for (std::size_t i = 0; i < times; ++i) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}

TEST(Contract_FusedInt8, RoundsToNearestEvenAndClamps) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const DType type : {DType::f32, DType::f64}) {
    for (const std::size_t times : {1, 30}) {  // a tail alone, and whole vectors
      const Weights ties(type, repeated<double>({0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 126.5, 126.5, 0.49, 2.51}, times), 1);
      const Weights beyond(
          type, repeated<double>({127.4, 127.5, 1e30, 1e30, kInfinity, kInfinity, kNan, kNan, -0.0, 128}, times), 1);
      const Weights halves(type, repeated<double>({0.125, 0.375, 0.625, 31.75}, times), 0.25);
      for (const internal::Target target : runnable_targets()) {
        EXPECT_EQ(ties.run_on(target), repeated<int>({0, 0, 2, -2, 2, -2, 126, -126, 0, -3}, times))
            << internal::name(target);
        EXPECT_EQ(beyond.run_on(target), repeated<int>({127, -127, 127, -127, 127, -127, 0, 0, 0, -127}, times))
            << internal::name(target);
        EXPECT_EQ(halves.run_on(target), repeated<int>({0, -2, 2, -127}, times)) << internal::name(target);
      }
    }
  }
}

// 16 columns and more: the largest element may be in whole vectors or in the tail.
TEST(Contract_FusedInt8, TheLargestOfTheRowIs127) {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const std::size_t cols : {3, 40, 1100, 14100}) {
      for (const std::size_t place : {std::size_t{0}, cols / 2, cols - 1}) {
        std::vector<double> weight(cols, 1.5);
        weight[place] = 254;  // factor 1/2, scale 2
        const Weights weights(type, weight, 0);
        for (const internal::Target target : runnable_targets()) {
          float scale = 0;
          const Integers integers = weights.run_on(target, &scale);
          EXPECT_EQ(scale, 2) << internal::name(target);
          for (std::size_t i = 0; i < cols; ++i) {
            const int sign = i % 2 == 0 ? 1 : -1;
            ASSERT_EQ(integers[i], sign * (i == place ? 127 : 1))
                << i << " of " << cols << " on " << internal::name(target);
          }
        }
      }
    }
  }
}

TEST(Contract_FusedInt8, QuantisesRowsOfZerosAndNonFiniteRows) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const DType type : {DType::f32, DType::f64}) {
    for (const std::size_t cols : {5, 14100}) {
      std::vector<double> with_nan(cols, 1), with_infinity(cols, 1);
      with_nan[cols - 2] = kNan;
      with_infinity[1] = kInfinity;
      for (const internal::Target target : runnable_targets()) {
        float scale = 1;
        EXPECT_EQ(Weights(type, std::vector<double>(cols), 0).run_on(target, &scale), Integers(cols));
        EXPECT_EQ(scale, 0);
        EXPECT_EQ(Weights(type, with_nan, 0).run_on(target, &scale), Integers(cols));
        EXPECT_TRUE(std::isnan(scale));
        EXPECT_EQ(Weights(type, with_infinity, 0).run_on(target, &scale), Integers(cols));
        EXPECT_TRUE(std::isnan(scale));
      }
    }
  }
}

// Below 2^-121, 127 / m exceeds f32's range, and m / 127 is subnormal. In f64, m may exceed f32's range at both ends.
TEST(Contract_FusedInt8, QuantisesRowsAtTheEndsOfTheRange) {
  for (const double magnitude : {0x1p-119, 0x1p-122, 0x1p-149, 0x1p127, 0x1.FFFFFEp127}) {
    const Weights weights(DType::f32, {magnitude, magnitude, magnitude / 2, 0}, 0);
    expect_fused_is_composed(weights.op, weights.inputs);
  }
  for (const double magnitude : {1e-300, 0x1p-151, 0x1p-150, 1e-40, 1e38, 0x1p128, 1e300}) {
    const Weights weights(DType::f64, {magnitude, magnitude, magnitude / 2, 0}, 0);
    expect_fused_is_composed(weights.op, weights.inputs);
  }
  for (const double given : {0x1p-126, static_cast<double>(std::numeric_limits<float>::max())}) {
    for (const DType type : {DType::f32, DType::f64}) {
      const Weights weights(type, {given, given * 0.75, given * 0.25, given * 0.5, 0x1p-130, 0}, given);
      expect_fused_is_composed(weights.op, weights.inputs);
      for (const internal::Target target : runnable_targets()) {
        EXPECT_EQ(weights.run_on(target)[0], 1) << given << " on " << internal::name(target);
      }
    }
  }
}

// 127 / m exceeds f32's range, so the largest f32 replaces it. 2^-122 times it is 64.
TEST(Contract_FusedInt8, UsesTheLargestFactorBelowItsRange) {
  for (const DType type : {DType::f32, DType::f64}) {
    const Weights weights(type, {0x1p-122, 0x1p-122, 0x1p-123, 0x1p-126, 0x1p-140, 0x1p-149}, 0);
    const Weights smallest(type, {0x1p-149, 0x1p-149, 0}, 0);
    for (const internal::Target target : runnable_targets()) {
      float scale = 0;
      EXPECT_EQ(weights.run_on(target, &scale), (Integers{64, -64, 32, -4, 0, 0})) << internal::name(target);
      EXPECT_EQ(scale, 0x1p-122f / 127);
      EXPECT_EQ(smallest.run_on(target, &scale), (Integers{0, 0, 0})) << internal::name(target);
      EXPECT_EQ(scale, 0);
    }
  }
}

// 0.1 rounded to f32 is above 0.1, and its reciprocal is 10. A scale rounded in another direction would break the ties.
TEST(Contract_FusedInt8, RoundsTheGivenScaleToNearestInEveryMode) {
  FusedOperation op = quantising(Kind::layer, DType::f32, 4, true, 0.1);
  FusedInputs inputs;
  inputs.x = Array(DType::f32, std::vector<double>{1, 2, 3, 5});
  inputs.weight = Array(DType::f32, std::vector<double>(4, 0));
  inputs.bias = Array(DType::f32, std::vector<double>{0.05, 0.15, 0.25, 0.35});
  const std::vector<std::byte> expected = {std::byte{0}, std::byte{2}, std::byte{2}, std::byte{4}};
  for (const internal::Target target : runnable_targets()) {
    for (const contracts::FpMode mode : contracts::unusual_fp_modes()) {
      const contracts::Runner in_mode = [&](const Forward& forward, const Executor& executor) {
        const contracts::FpModeScope scope(mode);
        contracts::on_target(target)(forward, executor);
      };
      EXPECT_TRUE(std::ranges::equal(run_fused(in_mode, op, inputs).y.bytes(), expected))
          << contracts::name(mode) << " on " << internal::name(target);
    }
  }
}

}  // namespace
}  // namespace evenorm::testing

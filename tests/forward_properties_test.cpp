// Relations between calls: scaled, negated, converted and composed inputs give the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "contracts/accuracy.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

using reference::Real;

constexpr std::size_t kWidths[] = {2, 17, 33, 768, 1025, 3000};

Outcome outcome_of(internal::Target target, const Operation& op, const Array& x, const Array& weight = {},
                   const Array& bias = {}) {
  return run_operation(on_target(target), op, x, weight, bias);
}

bool same_bits(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

template <class Change>
Array changed(const Array& x, DType dtype, const Change& change) {
  Array result(dtype, x.size());
  const std::vector<Real> values = reference::widen(x.dtype(), x.data(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) reference::store(dtype, result.data(), i, change(values[i]));
  return result;
}
Array converted(const Array& x, DType dtype) {
  return changed(x, dtype, [](Real v) { return v; });
}

std::string place_of(const Operation& op, internal::Target target) {
  return op.name() + " on " + std::string(internal::name(target));
}

class Forward_Properties : public ::testing::TestWithParam<DType> {};

// In f64, scales into and out of the range in which the kernels scale rows themselves. f32 rows stay in range.
TEST_P(Forward_Properties, PowerOfTwoScalingWithoutEpsChangesNoBit) {
  const DType dtype = GetParam();
  const std::vector<int> f64_places = {1, -1, 100, -300, -450, 452, 465, 478, 490, 900, -900, 1000};
  const std::vector<int> f32_places = {1, -1, 40, -50, 95};
  const std::vector<int> f16_places = {1, -1, 3, -2, 7};
  for (const std::size_t cols : kWidths) {
    for (const Kind kind : kBothKinds) {
      Operation op = same_type(kind, dtype, cols);
      op.eps = 0;
      const Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
      // Multiples of 2^-6 up to 6, so that scaling is exact at both ends of the range.
      const Array x = changed(make_input("normal", dtype, cols), dtype,
                              [](Real v) { return static_cast<Real>(std::round(static_cast<double>(v) * 64) / 64); });
      for (const internal::Target target : runnable_targets()) {
        const Outcome plain = outcome_of(target, op, x, weight, bias);
        for (const int places : dtype == DType::f64 ? f64_places : dtype == DType::f16 ? f16_places : f32_places) {
          const Real factor = std::ldexp(1.0, places);
          const Array scaled_x = changed(x, dtype, [&](Real v) { return v * factor; });
          const Outcome scaled = outcome_of(target, op, scaled_x, weight, bias);
          EXPECT_TRUE(same_bits(scaled.y, plain.y)) << place_of(op, target) << " scaled by 2^" << places;
          EXPECT_EQ(scaled.rstd[0], std::ldexp(plain.rstd[0], -places)) << place_of(op, target) << " 2^" << places;
          if (kind == Kind::layer) {
            EXPECT_EQ(scaled.mean[0], std::ldexp(plain.mean[0], places)) << place_of(op, target);
          }
        }
      }
    }
  }
}

TEST_P(Forward_Properties, NegatedRowsGiveNegatedBits) {
  const DType dtype = GetParam();
  for (const std::size_t cols : kWidths) {
    for (const char* input : {"normal", "mean_1e2", "mean_1e4", "huge"}) {
      for (const Kind kind : kBothKinds) {
        Operation op = same_type(kind, dtype, cols);
        op.bias.reset();
        const Array weight = make_weight(dtype, cols), x = make_input(input, dtype, cols);
        const Array negated_x = changed(x, dtype, [](Real v) { return -v; });
        for (const internal::Target target : runnable_targets()) {
          const Outcome plain = outcome_of(target, op, x, weight), negated = outcome_of(target, op, negated_x, weight);
          for (std::size_t i = 0; i < cols; ++i) {
            const Real a = reference::widen(dtype, plain.y.data() + i * size_of(dtype), 1)[0];
            const Real b = reference::widen(dtype, negated.y.data() + i * size_of(dtype), 1)[0];
            ASSERT_TRUE(a == -b) << place_of(op, target) << " " << input << " column " << i;
          }
          EXPECT_EQ(plain.rstd, negated.rstd);
        }
      }
    }
  }
}

TEST_P(Forward_Properties, OnesAndZerosEqualAbsentParameters) {
  const DType dtype = GetParam();
  for (const std::size_t cols : kWidths) {
    const Operation with = same_type(Kind::layer, dtype, cols);
    const Operation without = same_type(Kind::layer, dtype, cols, false);
    Operation centred = with;
    centred.zero_centered = true;
    const Array ones(dtype, std::vector<double>(cols, 1)), zeros(dtype, std::vector<double>(cols, 0));
    const Array x = make_input("normal", dtype, cols);
    for (const internal::Target target : runnable_targets()) {
      const Outcome absent = outcome_of(target, without, x);
      EXPECT_TRUE(same_bits(absent.y, outcome_of(target, with, x, ones, zeros).y)) << place_of(with, target);
      EXPECT_TRUE(same_bits(absent.y, outcome_of(target, centred, x, zeros, zeros).y)) << place_of(centred, target);
    }
  }
}

// 16-bit inputs, outputs and parameters are only converted at the ends.
TEST_P(Forward_Properties, SmallTypesGiveTheBitsOfTheirWidenedValues) {
  const DType dtype = GetParam();
  if (size_of(dtype) != 2) return;
  for (const std::size_t cols : kWidths) {
    for (const Kind kind : kBothKinds) {
      const Operation small = same_type(kind, dtype, cols);
      const Operation wide = same_type(kind, DType::f32, cols);
      Operation output = wide;
      output.y = dtype;
      Operation input = wide;
      input.x = dtype;
      const Array x = make_input("normal", dtype, cols);
      const Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
      const Array wide_x = converted(x, DType::f32), wide_weight = converted(weight, DType::f32);
      const Array wide_bias = converted(bias, DType::f32);
      for (const internal::Target target : runnable_targets()) {
        const Outcome expected = outcome_of(target, wide, wide_x, wide_weight, wide_bias);
        const Array rounded = converted(expected.y, dtype);
        const Outcome direct = outcome_of(target, small, x, weight, bias);
        EXPECT_TRUE(same_bits(direct.y, rounded)) << place_of(small, target);
        EXPECT_EQ(direct.mean, expected.mean);
        EXPECT_EQ(direct.rstd, expected.rstd);
        EXPECT_TRUE(same_bits(outcome_of(target, output, wide_x, wide_weight, wide_bias).y, rounded))
            << place_of(output, target);
        EXPECT_TRUE(same_bits(outcome_of(target, input, x, wide_weight, wide_bias).y, expected.y))
            << place_of(input, target);
      }
    }
  }
}

TEST_P(Forward_Properties, F32StatisticsAreF64StatisticsRoundedOnce) {
  const DType dtype = GetParam();
  for (const std::size_t cols : kWidths) {
    const Operation op = same_type(Kind::layer, dtype, cols);
    const Array weight = make_weight(dtype, cols), bias = make_bias(dtype, cols);
    Array x = make_input("mean_1e2", dtype, cols);
    for (const char* input : {"huge_half", "subnormal", "zeros", "normal"}) x.append(make_input(input, dtype, cols));
    for (const internal::Target target : runnable_targets()) {
      Layout layout;
      layout.statistics = DType::f32;
      const Outcome wide = outcome_of(target, op, x, weight, bias);
      const Outcome narrow = run_operation(on_target(target), op, x, weight, bias, layout);
      EXPECT_TRUE(same_bits(wide.y, narrow.y));
      for (std::size_t r = 0; r < wide.rstd.size(); ++r) {
        EXPECT_EQ(narrow.rstd[r], static_cast<double>(static_cast<float>(wide.rstd[r]))) << place_of(op, target);
        EXPECT_EQ(narrow.mean[r], static_cast<double>(static_cast<float>(wide.mean[r]))) << place_of(op, target);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Forward_Properties, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return evenorm::testing::word(test.param); });

}  // namespace
}  // namespace evenorm::contracts

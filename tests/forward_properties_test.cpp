// Relations between calls: scaled, negated, converted and composed inputs give the same bits. Cases with
// statistics=f32 compare rounded statistics.
#include <gtest/gtest.h>

#include <cmath>

#include "support/cases.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::filled;
using evenorm::testing::on_every_target;

constexpr std::size_t kWidths[] = {2, 17, 33, 768, 1025, 3000};

template <class Change>
Array changed(const Array& x, DType dtype, const Change& change) {
  Array result(dtype, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result.set(i, change(value_at(x, i)));
  return result;
}
Array converted(const Array& x, DType dtype) {
  return changed(x, dtype, [](double v) { return v; });
}

Outcome on_best_target(const Operation& op, const Inputs& inputs) {
  return run_operation(on_target(runnable_targets()[0]), op, inputs);
}
void expect_outcome(const Operation& op, const Inputs& inputs, const Outcome& expected, const std::string& what) {
  on_every_target(op, inputs, [&](const Outcome& found) { EXPECT_EQ(found.difference_to(expected), "") << what; });
}

class Forward_Properties : public ::testing::TestWithParam<DType> {};

// In f64, scales into and out of the range in which the kernels scale rows themselves. f32 rows stay in range.
TEST_P(Forward_Properties, PowerOfTwoScalingWithoutEpsChangesNoBit) {
  const DType dtype = GetParam();
  const std::vector<int> of_f64 = {1, -1, 100, -300, -450, 452, 465, 478, 490, 900, -900, 1000};
  const std::vector<int> of_f32 = {1, -1, 40, -50, 95}, of_f16 = {1, -1, 3, -2, 7};
  for (const std::size_t cols : kWidths) {
    for (const Kind kind : kBothKinds) {
      Operation op = same_type(kind, dtype, cols);
      op.eps = 0;
      Inputs in{.x = {}, .weight = make_weight(dtype, cols), .bias = make_bias(dtype, cols)};
      // Multiples of 2^-6 up to 6, so that scaling is exact at both ends of the range.
      const Array x =
          changed(make_input("normal", dtype, cols), dtype, [](double v) { return std::round(v * 64) / 64; });
      in.x = x;
      const Outcome plain = on_best_target(op, in);
      for (const int places : dtype == DType::f64 ? of_f64 : dtype == DType::f16 ? of_f16 : of_f32) {
        Outcome expected = plain;
        expected.rstd[0] = std::ldexp(plain.rstd[0], -places);
        if (kind == Kind::layer) expected.mean[0] = std::ldexp(plain.mean[0], places);
        in.x = changed(x, dtype, [&](double v) { return std::ldexp(v, places); });
        expect_outcome(op, in, expected, "scaled by 2^" + std::to_string(places));
      }
    }
  }
}

TEST_P(Forward_Properties, NegatedRowsGiveNegatedBits) {
  const DType dtype = GetParam();
  const auto negated = [&](const Array& values) { return changed(values, dtype, [](double v) { return -v; }); };
  for (const std::size_t cols : kWidths) {
    for (const char* input : {"normal", "mean_1e2", "mean_1e4", "huge"}) {
      for (const Kind kind : kBothKinds) {
        Operation op = same_type(kind, dtype, cols);
        op.bias.reset();
        Inputs in{.x = make_input(input, dtype, cols), .weight = make_weight(dtype, cols)};
        const Outcome plain = on_best_target(op, in);
        in.x = negated(in.x);
        on_every_target(op, in, [&](const Outcome& found) {
          for (std::size_t i = 0; i < cols; ++i) ASSERT_EQ(value_at(found.y, i), -value_at(plain.y, i)) << input << i;
          EXPECT_EQ(found.rstd, plain.rstd);
        });
      }
    }
  }
}

TEST_P(Forward_Properties, OnesAndZerosEqualAbsentParameters) {
  const DType dtype = GetParam();
  for (const std::size_t cols : kWidths) {
    const Array x = make_input("normal", dtype, cols), ones = filled(dtype, cols, 1), zeros = filled(dtype, cols, 0);
    const Operation with = same_type(Kind::layer, dtype, cols);
    Operation centred = with;
    centred.zero_centered = true;
    const Outcome absent = on_best_target(same_type(Kind::layer, dtype, cols, false), {x});
    expect_outcome(with, {.x = x, .weight = ones, .bias = zeros}, absent, "ones");
    expect_outcome(centred, {.x = x, .weight = zeros, .bias = zeros}, absent, "zeros, zero-centred");
  }
}

// 16-bit inputs, outputs and parameters are only converted at the ends.
TEST_P(Forward_Properties, SmallTypesGiveTheBitsOfTheirWidenedValues) {
  const DType dtype = GetParam();
  if (size_of(dtype) != 2) return;
  for (const std::size_t cols : kWidths) {
    for (const Kind kind : kBothKinds) {
      const Operation small = same_type(kind, dtype, cols), wide = same_type(kind, DType::f32, cols);
      Operation output = wide, input = wide;
      output.y = input.x = dtype;
      const Inputs in{
          .x = make_input("normal", dtype, cols), .weight = make_weight(dtype, cols), .bias = make_bias(dtype, cols)};
      const Inputs widened{.x = converted(in.x, DType::f32),
                           .weight = converted(in.weight, DType::f32),
                           .bias = converted(in.bias, DType::f32)};
      const Outcome expected = on_best_target(wide, widened);
      Outcome rounded = expected;
      rounded.y = converted(expected.y, dtype);
      expect_outcome(small, in, rounded, "all");
      expect_outcome(output, widened, rounded, "the output");
      expect_outcome(input, {.x = in.x, .weight = widened.weight, .bias = widened.bias}, expected, "the input");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Forward_Properties, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return evenorm::testing::word(test.param); });

}  // namespace
}  // namespace evenorm::contracts

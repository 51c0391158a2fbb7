// Residual and sum: they have the bits of the sum in scalar code, rounded to x's type, and of the plain norm of that
// sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "contracts/accuracy.hpp"
#include "run/schedule.hpp"
#include "support/fused.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::runnable_targets;

constexpr std::size_t kCols[] = {1, 15, 16, 17, 64, 127, 768, 1023, 1024, 1025, 3000, 12000};

// One row, two, a few, or more than two groups.
std::size_t rows_for(std::size_t cols, std::size_t turn) {
  constexpr std::size_t kRows[] = {33, 9, 2, 1};
  return cols > 2000 ? 1 + turn % 3 : kRows[turn % 4];
}

FusedOperation with_residual(const contracts::Operation& norm, DType residual, double scale = 1) {
  FusedOperation op{norm};
  op.residual = residual;
  op.residual_scale = scale;
  return op;
}

class Contract_FusedResidual : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_FusedResidual, HasTheBitsOfTheSumAndThenTheNorm) {
  std::size_t turn = 0;
  for (const Kind kind : kBothKinds) {
    for (const bool parameters : {true, false}) {
      for (const std::size_t cols : kCols) {
        contracts::Operation norm = contracts::same_type(kind, GetParam(), cols, parameters);
        norm.zero_centered = parameters && turn % 3 == 0;
        FusedOperation op = with_residual(norm, GetParam(), turn % 4 == 1 ? -0.7 : 1);
        op.sum = turn % 5 != 4;
        expect_fused_is_composed(op, fused_inputs(op, rows_for(cols, turn), turn * 5));
        ++turn;
      }
    }
  }
}

// A long row that is scaled or not finite, after its blocks have been shared out.
TEST_P(Contract_FusedResidual, HandlesOutOfRangeLongRowsInPlace) {
  const FusedOperation op = with_residual(contracts::same_type(Kind::rms, GetParam(), 70001), GetParam());
  for (const std::size_t kind : {2, 5, 13, 16}) {
    const FusedInputs inputs = fused_inputs(op, 1, kind);
    const FusedLayout swapped{.y = Place::of_residual, .sum = Place::of_x};
    expect_fused_is_composed(op, inputs, FusedWay{"7 threads, in place", swapped, pool_executor(7)});
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedResidual, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return word(test.param); });

// The sum uses f64 arithmetic if x or the residual is f64. The norm uses it if x, y, weight or bias is f64.
TEST(Contract_FusedResidual, HandlesMixturesOfTypes) {
  using enum DType;
  const contracts::Operation norms[] = {
      {Kind::layer, bf16, f32, f32, f32, false, 1e-5, 0}, {Kind::layer, f32, bf16, f32, {}, true, 1e-5, 0},
      {Kind::rms, f16, f16, f32, {}, false, 1e-5, 0},     {Kind::layer, f32, f32, f64, f32, false, 1e-5, 0},
      {Kind::layer, f64, f16, bf16, {}, false, 1e-5, 0},  {Kind::rms, bf16, bf16, {}, f64, false, 1e-5, 0},
      {Kind::layer, f16, f64, {}, {}, false, 1e-5, 0}};
  for (contracts::Operation norm : norms) {
    for (const DType residual : kAllTypes) {
      for (const std::size_t cols : {17, 129, 1100}) {
        norm.cols = cols;
        const FusedOperation op = with_residual(norm, residual, cols == 129 ? 0.1 : 1);
        expect_fused_is_composed(op, fused_inputs(op, cols > 1000 ? 5 : 17, cols), 2);
      }
    }
  }
}

// The norm takes the sum as rounded to x's type, whether the sum is an output or not.
TEST(Contract_FusedResidual, IsRoundedBeforeTheNorm) {
  FusedOperation op = with_residual({Kind::layer, DType::bf16, DType::f32, {}, {}, false, 0, 4}, DType::bf16);
  FusedInputs inputs;
  inputs.x = Array(DType::bf16, std::vector<double>{256, 1, 2, 3});
  inputs.residual = Array(DType::bf16, std::vector<double>{1, 0, 0, 0});  // 257 in bf16 is 256
  for (const bool sum : {true, false}) {
    op.sum = sum;
    for (const internal::Target target : runnable_targets()) {
      const FusedOutcome outcome = run_fused(contracts::on_target(target), op, inputs);
      EXPECT_EQ(outcome.mean[0], 65.5) << internal::name(target);
      EXPECT_TRUE(!sum || contracts::bits_at(outcome.sum, 0) == 0x4380) << internal::name(target);
    }
  }
}

// fma rounds once: (1 + 2^-12)^2 leaves 2^-24 beside 2^-11.
TEST(Contract_FusedResidual, MultipliesTheScaleInOneRounding) {
  const double near_one = 1 + 0x1p-12;
  FusedOperation op = with_residual({Kind::layer, DType::f32, DType::f32, {}, {}, false, 0, 2}, DType::f32, near_one);
  FusedInputs inputs;
  inputs.x = Array(DType::f32, std::vector<double>{-1 - 0x1p-11, 8});
  inputs.residual = Array(DType::f32, std::vector<double>{near_one, 0});
  for (const internal::Target target : runnable_targets()) {
    const FusedOutcome outcome = run_fused(contracts::on_target(target), op, inputs);
    float sum = 0;
    std::memcpy(&sum, outcome.sum.data(), sizeof sum);
    EXPECT_EQ(sum, 0x1p-24f) << internal::name(target);
  }
}

// Short rows of every kind, kept in scratch or in the memory of y or the sum.
TEST(Contract_FusedResidual, HandlesShortRowsWithStreamingStores_Whole) {
  for (const auto& [rows, cols] : {std::pair<std::size_t, std::size_t>{2800, 768}, {21000, 100}, {44000, 48}}) {
    FusedOperation op = with_residual(contracts::same_type(Kind::layer, DType::f32, cols), DType::f32, 0.3);
    const FusedInputs inputs = fused_inputs(op, rows);
    for (const bool sum : {true, false}) {
      op.sum = sum;
      expect_fused_is_composed(op, inputs, FusedWay{"dense", {}, {}});
      expect_fused_is_composed(op, inputs, FusedWay{"gaps, 2 threads", {.offset = 1, .gap = 3}, pool_executor(2)});
    }
  }
}

TEST(Contract_FusedResidual, HandlesGapsInOneTensor) {
  constexpr std::size_t kRows = 40, kWidth = 48, kGap = 5;
  const std::vector<std::int64_t> shape = {kRows, kWidth}, apart = {kWidth + kGap, 1}, normalized = {kWidth};
  const auto with_gaps = [](const Array& rows, std::size_t bytes_of_row, std::size_t stride) {
    Array wide(rows.dtype(), kRows * (kWidth + kGap));
    for (std::size_t r = 0; r < kRows; ++r) {
      std::memcpy(wide.data() + r * stride, rows.data() + r * bytes_of_row, bytes_of_row);
    }
    return wide;
  };
  for (const DType residual : {DType::f32, DType::bf16}) {  // other kernels add terms of one type
    const FusedOperation op = with_residual(contracts::same_type(Kind::layer, DType::f32, kWidth), residual);
    const FusedInputs inputs = fused_inputs(op, kRows);
    const FusedOutcome expected = one_by_one(runnable_targets()[0], op, inputs);
    for (const internal::Target target : runnable_targets()) {
      for (std::size_t gaps = 0; gaps < 4; ++gaps) {
        Array tensors[4] = {inputs.x, inputs.residual, Array(DType::f32, kRows * kWidth),
                            Array(DType::f32, kRows * kWidth)};
        const std::size_t size = size_of(tensors[gaps].dtype());
        const std::size_t bytes_of_row = kWidth * size, stride = (kWidth + kGap) * size;
        tensors[gaps] = with_gaps(tensors[gaps], bytes_of_row, stride);
        const auto strides = [&](std::size_t i) {
          return i == gaps ? std::span<const std::int64_t>(apart) : std::span<const std::int64_t>();
        };
        Forward forward;
        forward.x = {tensors[0].data(), DType::f32, shape, strides(0)};
        forward.residual = {tensors[1].data(), residual, shape, strides(1)};
        forward.y = {tensors[2].data(), DType::f32, shape, strides(2)};
        forward.sum = {tensors[3].data(), DType::f32, shape, strides(3)};
        forward.normalized_shape = normalized;
        forward.weight = {inputs.weight.data(), DType::f32, normalized, {}};
        forward.bias = {inputs.bias.data(), DType::f32, normalized, {}};
        internal::run_on(target, forward);
        const auto same = [&](std::size_t i, const Array& whole) {
          return (i == gaps ? std::ranges::equal(with_gaps(whole, bytes_of_row, stride).bytes(), tensors[i].bytes())
                            : std::ranges::equal(whole.bytes(), tensors[i].bytes()));
        };
        EXPECT_TRUE(same(2, expected.y) && same(3, expected.sum))
            << name(residual) << " residual, gaps in tensor " << gaps;
      }
    }
  }
}

// The heads of query and key in (tokens, 3 * heads * 64): strided rows, while the other tensors are dense.
TEST(Contract_FusedResidual, HandlesRowsWithinALargerTensor) {
  constexpr std::size_t kTokens = 7, kHeads = 3, kWidth = 64, kRows = kTokens * kHeads;
  const std::vector<std::int64_t> shape = {kTokens, kHeads, kWidth}, strides = {3 * kHeads * kWidth, kWidth, 1};
  const std::vector<std::int64_t> normalized = {kWidth}, inside = {2 * kHeads * kWidth, kWidth, 1};
  for (const DType dtype : kAllTypes) {
    const FusedOperation op = with_residual(contracts::same_type(Kind::rms, dtype, kWidth), dtype);
    const FusedInputs inputs = fused_inputs(op, kRows);
    const FusedOutcome expected = one_by_one(runnable_targets()[0], op, inputs);
    const std::size_t row = kWidth * size_of(dtype);
    for (const internal::Target target : runnable_targets()) {
      Array all(dtype, 3 * kRows * kWidth), y(dtype, 2 * kRows * kWidth), residual = inputs.residual;
      const auto place = [&](std::byte* tensor, std::size_t r, std::size_t wide) {
        return tensor + (r / kHeads * wide * kHeads + kHeads + r % kHeads) * row;  // the second of each token's parts
      };
      for (std::size_t r = 0; r < kRows; ++r) std::memcpy(place(all.data(), r, 3), inputs.x.data() + r * row, row);
      Forward forward;
      forward.kind = Kind::rms;
      forward.x = {place(all.data(), 0, 3), dtype, shape, strides};
      forward.y = {place(y.data(), 0, 2), dtype, shape, inside};
      forward.normalized_shape = normalized;
      forward.weight = {inputs.weight.data(), dtype, normalized, {}};
      forward.bias = {inputs.bias.data(), dtype, normalized, {}};
      forward.residual = {residual.data(), dtype, shape, {}};
      forward.sum = {place(all.data(), 0, 3), dtype, shape, strides};
      internal::run_on(target, forward);
      for (std::size_t r = 0; r < kRows; ++r) {
        EXPECT_EQ(std::memcmp(place(y.data(), r, 2), expected.y.data() + r * row, row), 0) << "row " << r;
        EXPECT_EQ(std::memcmp(place(all.data(), r, 3), expected.sum.data() + r * row, row), 0) << "row " << r;
      }
    }
  }
}

}  // namespace
}  // namespace evenorm::testing

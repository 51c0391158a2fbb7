// The scratch of a backward pass: its largest size, and that the pass writes no byte outside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "support/cases.hpp"

namespace evenorm::contracts {
namespace {

// A backward pass with invalid addresses, which nothing may read.
std::size_t bytes_for(const Operation& op, const Shape& shape, const Shape& parameter = {}) {
  int somewhere = 0;
  const Shape cols{shape.back()}, &of_sums = parameter.empty() ? cols : parameter;
  Backward backward;
  backward.kind = op.kind;
  backward.x = {&somewhere, op.x, shape, {}};
  backward.dy = {&somewhere, op.y, shape, {}};
  backward.normalized_shape = cols;
  if (op.weight) backward.weight = {&somewhere, *op.weight, of_sums, {}};
  if (op.dx) backward.dx = {&somewhere, *op.dx, shape, {}};
  if (op.dgamma) backward.dweight = {&somewhere, *op.dgamma, of_sums, {}};
  if (op.dbeta) backward.dbias = {&somewhere, *op.dbeta, of_sums, {}};
  return scratch_bytes(backward);
}

std::vector<Operation> operations(std::size_t cols) {
  using enum DType;
  std::vector<Operation> all;
  for (const DType x : kAllTypes) {
    for (const DType dy : kAllTypes) {
      for (const DType dx : kAllTypes)
        all.push_back({.x = x, .y = dy, .weight = x, .cols = cols, .dx = dx, .dgamma = f32, .dbeta = f32});
      all.push_back({.kind = Kind::rms, .x = x, .y = dy, .weight = f64, .cols = cols, .dgamma = f64});
    }
  }
  return all;
}

TEST(Contract_GradientsScratch, IsAtMostAnEighthOfXOrAQuarterMebibyte) {
  std::size_t largest = 0;
  for (const std::size_t cols : {1, 2, 17, 63, 768, 1025, 4096, 4097, 8192, 8193, 20000, 1 << 20, 100000000}) {
    for (const Operation& op : operations(cols)) {
      for (const std::int64_t rows :
           {0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 255, 256, 1000, 4096, 16383, 16384, 16385, 32768, 100000, 1 << 20}) {
        const std::size_t bytes = bytes_for(op, {rows, static_cast<std::int64_t>(cols)});
        const std::size_t of_x = static_cast<std::size_t>(rows) * cols * size_of(op.x);
        ASSERT_LE(bytes, std::max(std::size_t{256} << 10U, of_x / 8) + 64) << rows << " rows, " << op.name();
        ASSERT_GT(bytes, 0u);
        largest = std::max(largest, bytes);
      }
    }
  }
  EXPECT_GT(largest, std::size_t{1} << 30U);
}

TEST(Contract_GradientsScratch, IsAtMostAsMuchForSetsOfRows) {
  for (const DType dtype : kAllTypes) {
    for (const std::int64_t sets : {1, 2, 7, 64, 1000, 100000}) {
      for (const std::int64_t rows : {1, 16, 96, 129, 4096}) {
        for (const std::int64_t cols : {1, 33, 768, 1025, 65536}) {
          const Operation op{.x = dtype, .y = dtype, .dgamma = DType::f32};
          const std::size_t of_x = static_cast<std::size_t>(sets * rows * cols) * size_of(dtype);
          ASSERT_LE(bytes_for(op, {sets, rows, cols}, {sets, 1, cols}),
                    std::max(std::size_t{256} << 10U, of_x / 8) + 64)
              << sets << " sets of " << rows << " x " << cols << " " << name(dtype);
        }
      }
    }
  }
}

TEST(Contract_GradientsScratch, IsZeroIfNothingIsSummed) {
  Operation op = same_type_backward(Kind::layer, DType::f32, 768);
  op.dgamma = op.dbeta = {};
  EXPECT_EQ(bytes_for(op, {4096, 768}), 0u);
}

// Sums and their chains, and a cache line for alignment: 128 rows of a 16-bit type, 4 x 8192 of f32.
TEST(Contract_GradientsScratch, IsNoMoreThanSumsThatFillIt) {
  const auto bytes_of = [](DType dtype, std::int64_t rows, std::int64_t cols) {
    return bytes_for(same_type_backward(Kind::layer, dtype, 1), {rows, cols});
  };
  EXPECT_EQ(bytes_of(DType::bf16, 128, 65536), (std::size_t{1} << 21U) + 64);
  EXPECT_EQ(bytes_of(DType::f32, 4, 8192), (std::size_t{256} << 10U) + 64);
  EXPECT_EQ(bytes_of(DType::f32, 4, 8191), (std::size_t{256} << 10U) + 48);
  EXPECT_LT(bytes_of(DType::f32, 4, 8193), std::size_t{1} << 10U);
}

// Exactly the requested scratch, at any distance from a cache line.
TEST(Contract_GradientsScratch, NothingOutsideItIsWritten) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    evenorm::testing::expect_same_bits(
        "layer $ weight=$ dx=$ dgamma=$ dbeta=$ {1x1,63x5,64x768,129x33,1000x17,3x9000,5x20000,3x8192,3x16384} "
        "x:normal,mean_1e6,std_1e300 entry=scratch*{0,1,8,63} {tasks=7,threads=1}",
        name(dtype));
  }
}

// A row tree of 14 levels, 16-bit types, strides, and dx in place of dy need the most scratch of a worker.
TEST(Contract_GradientsScratch, HoldsTheTreesOfLongStridedRows) {
  constexpr std::int64_t kCols = 8388608;
  const std::int64_t shape[] = {1, kCols}, strides[] = {2 * kCols, 2}, columns[] = {kCols}, zero[] = {0};
  const Array x = make_input("normal", DType::bf16, 2 * kCols, 1), dy = make_input("normal", DType::bf16, 2 * kCols, 2);
  const Array weight(DType::bf16, std::vector<double>{0.75});
  const auto gradients_of = [&](bool apart) {
    Array dx(DType::bf16, 2 * kCols), dweight(DType::f32, kCols);
    std::copy(dy.bytes().begin(), dy.bytes().end(), dx.data());
    Backward backward;
    backward.x = {x.data(), DType::bf16, shape, strides};
    backward.dy = {apart ? dy.data() : dx.data(), DType::bf16, shape, strides};
    backward.weight = {weight.data(), DType::bf16, columns, zero};
    backward.normalized_shape = columns;
    backward.dx = {dx.data(), DType::bf16, shape, strides};
    backward.dweight = {dweight.data(), DType::f32, columns, {}};
    run(backward);
    return std::pair(dx, dweight);
  };
  const auto [dx, dweight] = gradients_of(false);
  const auto [expected_dx, expected_dweight] = gradients_of(true);
  EXPECT_TRUE(std::ranges::equal(dx.bytes(), expected_dx.bytes()));
  EXPECT_TRUE(std::ranges::equal(dweight.bytes(), expected_dweight.bytes()));
}

}  // namespace
}  // namespace evenorm::contracts

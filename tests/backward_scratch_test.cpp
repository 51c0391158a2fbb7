// The scratch of a backward pass: its largest size, and that the pass writes no byte outside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "support/gradient_rows.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::inputs_of;

// A backward pass with invalid addresses, which nothing may read.
struct Description {
  std::int64_t shape[2];
  std::span<const std::int64_t> cols{shape + 1, 1};
  Backward backward;

  Description(const BackwardOperation& op, std::int64_t rows)
      : shape{rows, static_cast<std::int64_t>(op.forward.cols)} {
    void* const somewhere = shape;
    backward.kind = op.forward.kind;
    backward.x = {somewhere, op.forward.x, shape, {}};
    backward.dy = {somewhere, op.forward.y, shape, {}};
    backward.normalized_shape = cols;
    if (op.forward.weight) backward.weight = {somewhere, *op.forward.weight, cols, {}};
    if (op.dx) backward.dx = {somewhere, *op.dx, shape, {}};
    if (op.dgamma) backward.dweight = {somewhere, *op.dgamma, cols, {}};
    if (op.dbeta) backward.dbias = {somewhere, *op.dbeta, cols, {}};
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
};

std::vector<BackwardOperation> operations(std::size_t cols) {
  using enum DType;
  std::vector<BackwardOperation> all;
  for (const DType x : kAllTypes) {
    for (const DType dy : kAllTypes) {
      for (const DType dx : kAllTypes) all.push_back({{Kind::layer, x, dy, x, {}, false, 1e-5, cols}, dx, f32, f32});
      all.push_back({{Kind::rms, x, dy, f64, {}, false, 1e-5, cols}, {}, f64, {}});
    }
  }
  return all;
}

TEST(Contract_GradientsScratch, IsAtMostAnEighthOfXOrAQuarterMebibyte) {
  std::size_t largest = 0;
  for (const std::size_t cols : {1, 2, 17, 63, 768, 1025, 4096, 4097, 8192, 8193, 20000, 1 << 20, 100000000}) {
    for (const BackwardOperation& op : operations(cols)) {
      for (const std::int64_t rows :
           {0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 255, 256, 1000, 4096, 16383, 16384, 16385, 32768, 100000, 1 << 20}) {
        const Description description(op, rows);
        const std::size_t bytes = scratch_bytes(description.backward);
        const std::size_t of_x = static_cast<std::size_t>(rows) * cols * size_of(op.forward.x);
        ASSERT_LE(bytes, std::max(std::size_t{256} << 10U, of_x / 8) + 64) << rows << " rows, " << op.name();
        ASSERT_GT(bytes, 0u);
        largest = std::max(largest, bytes);
      }
    }
  }
  EXPECT_GT(largest, std::size_t{1} << 30U);
}

TEST(Contract_GradientsScratch, IsAtMostAsMuchForSetsOfRows) {
  int somewhere = 0;
  for (const DType dtype : kAllTypes) {
    for (const std::int64_t sets : {1, 2, 7, 64, 1000, 100000}) {
      for (const std::int64_t rows : {1, 16, 96, 129, 4096}) {
        for (const std::int64_t cols : {1, 33, 768, 1025, 65536}) {
          const std::int64_t shape[] = {sets, rows, cols}, parameter[] = {sets, 1, cols};
          Backward backward;
          backward.x = backward.dy = {&somewhere, dtype, shape, {}};
          backward.normalized_shape = std::span(shape).last(1);
          backward.dweight = {&somewhere, DType::f32, parameter, {}};
          const std::size_t of_x = static_cast<std::size_t>(sets * rows * cols) * size_of(dtype);
          ASSERT_LE(scratch_bytes(backward), std::max(std::size_t{256} << 10U, of_x / 8) + 64)
              << sets << " sets of " << rows << " x " << cols << " " << name(dtype);
        }
      }
    }
  }
}

TEST(Contract_GradientsScratch, IsZeroIfNothingIsSummed) {
  BackwardOperation op = same_type_backward(Kind::layer, DType::f32, 768);
  op.dgamma = op.dbeta = {};
  EXPECT_EQ(scratch_bytes(Description(op, 4096).backward), 0u);
}

// Sums and their chains, and a cache line for alignment: 128 rows of a 16-bit type, 4 x 8192 of f32.
TEST(Contract_GradientsScratch, IsNoMoreThanSumsThatFillIt) {
  const auto bytes_of = [](DType dtype, std::int64_t rows, std::size_t cols) {
    return scratch_bytes(Description(same_type_backward(Kind::layer, dtype, cols), rows).backward);
  };
  EXPECT_EQ(bytes_of(DType::bf16, 128, 65536), (std::size_t{1} << 21U) + 64);
  EXPECT_EQ(bytes_of(DType::f32, 4, 8192), (std::size_t{256} << 10U) + 64);
  EXPECT_EQ(bytes_of(DType::f32, 4, 8191), (std::size_t{256} << 10U) + 48);
  EXPECT_LT(bytes_of(DType::f32, 4, 8193), std::size_t{1} << 10U);
}

// Runs with exactly the requested scratch, `odd` bytes after a cache line, between guards.
void expect_nothing_beside(const BackwardOperation& op, std::size_t rows, std::size_t odd, const Executor& executor) {
  constexpr std::size_t kGuard = 4096;
  constexpr std::byte kUntouched{0x5A};
  const BackwardInputs inputs = inputs_of(op, {"normal", "mean_1e6", "std_1e300"}, {"normal"}, rows);
  const BackwardOutcome expected = run_backward([](const Backward& b, const Executor&) { run(b); }, op, inputs);
  bool beside = false;
  const BackwardRunner runner = [&](const Backward& backward, const Executor& shared) {
    const std::size_t bytes = scratch_bytes(backward);
    std::vector<std::byte> memory(bytes + odd + 2 * kGuard + 64, kUntouched);
    void* place = memory.data() + kGuard;
    std::size_t space = bytes + 128;
    std::byte* start = static_cast<std::byte*>(std::align(64, 64, place, space)) + odd;
    run(backward, std::span(start, bytes), shared);
    const auto untouched = [&](std::byte b) { return b == kUntouched; };
    beside = !std::all_of(memory.data(), start, untouched) ||
             !std::all_of(start + bytes, memory.data() + memory.size(), untouched);
  };
  const BackwardOutcome outcome = run_backward(runner, op, inputs, {}, executor);
  EXPECT_FALSE(beside) << rows << " rows, " << op.name() << ", " << odd << " bytes after a cache line";
  EXPECT_TRUE(outcome.has_the_bits_of(expected) && outcome.kept_inside) << rows << " rows, " << op.name();
}

TEST(Contract_GradientsScratch, NothingOutsideItIsWritten) {
  struct Size {
    std::size_t rows, cols;
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const auto [rows, cols] :
         {Size{1, 1}, {63, 5}, {64, 768}, {129, 33}, {1000, 17}, {3, 9000}, {5, 20000}, {3, 8192}, {3, 16384}}) {
      const BackwardOperation op = same_type_backward(Kind::layer, dtype, cols);
      for (const std::size_t odd : {0, 1, 8, 63}) {
        expect_nothing_beside(op, rows, odd, {});
        expect_nothing_beside(op, rows, odd, reversed_executor(7));
      }
    }
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

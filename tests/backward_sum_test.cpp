// dx plus the gradient of a residual sum (dsum): one pass has the bits of the two steps.
#include <gtest/gtest.h>

#include <cstring>

#include "contracts/backward_harness.hpp"
#include "reference/reference.hpp"
#include "run/schedule.hpp"
#include "support/tensors.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;

constexpr std::size_t kRows = 5;

// fl(dx + dsum) in the arithmetic's type, then rounded to dx's.
Array added(const Array& dx, const Array& dsum, DType dtype) {
  const auto left = reference::widen(dx.dtype(), dx.data(), dx.size());
  const auto right = reference::widen(dsum.dtype(), dsum.data(), dsum.size());
  Array sum(dx.dtype(), dx.size());
  for (std::size_t i = 0; i < sum.size(); ++i) reference::store(sum.dtype(), sum.data(), i, left[i] + right[i]);
  const auto once = reference::widen(sum.dtype(), sum.data(), sum.size());
  Array rounded(dtype, sum.size());
  for (std::size_t i = 0; i < rounded.size(); ++i) reference::store(dtype, rounded.data(), i, once[i]);
  return rounded;
}

struct SumCase {
  Kind kind;
  DType x, dsum, dx;
  std::size_t cols;
};

// The dx of the first step, in the arithmetic's type.
Backward backward_of(const SumCase& c, const Array& x, const Array& dy, const Shape& shape, const Shape& normalized) {
  Backward backward;
  backward.kind = c.kind;
  backward.x = const_view(x, shape);
  backward.dy = const_view(dy, shape);
  backward.normalized_shape = normalized;
  return backward;
}

void try_sum(const SumCase& c, internal::Target target) {
  const std::size_t size = kRows * c.cols;
  const Array x = normals(c.x, size, 1), dy = normals(c.x, size, 2), dsum = normals(c.dsum, size, 3);
  const Shape shape = {kRows, static_cast<std::int64_t>(c.cols)}, normalized = {shape[1]};
  const bool wide = c.x == DType::f64 || c.dsum == DType::f64 || c.dx == DType::f64;
  Array apart(wide ? DType::f64 : DType::f32, size);
  Backward backward = backward_of(c, x, dy, shape, normalized);
  backward.dx = view(apart, shape);
  internal::run_on(target, backward, Executor{});
  const Array expected = added(apart, dsum, c.dx);

  Array dx(c.dx, size);
  backward.dx = view(dx, shape);
  backward.dsum = const_view(dsum, shape);
  internal::run_on(target, backward, contracts::reversed_executor(3));
  const std::string where = std::string(name(c.x)) + " " + std::string(name(c.dsum)) + " " + std::string(name(c.dx)) +
                            " " + std::to_string(c.cols) + " on " + std::string(internal::name(target));
  EXPECT_EQ(bytes_of(dx), bytes_of(expected)) << where;

  if (c.dsum != c.dx) return;
  Array both = dsum;
  backward.dsum = const_view(both, shape);
  backward.dx = view(both, shape);
  internal::run_on(target, backward, Executor{});
  EXPECT_EQ(bytes_of(both), bytes_of(expected)) << where << ", in place";
}

TEST(Contract_BackwardSum, HasTheBitsOfTheTwoSteps) {
  for (const internal::Target target : contracts::runnable_targets()) {
    for (const DType x : kAllTypes) {
      for (const DType dsum : kAllTypes) {
        for (const DType dx : {x, dsum}) {
          for (const std::size_t cols : {std::size_t{1}, std::size_t{67}, std::size_t{1300}}) {
            try_sum({cols == 67 ? Kind::rms : Kind::layer, x, dsum, dx, cols}, target);
          }
        }
      }
    }
  }
}

TEST(Contract_BackwardSum, WorksForAnyStrides) {
  const Shape shape = {3, 40}, apart = {1, 3}, normalized = {40};
  const Array x = normals(DType::f32, 120, 1), dy = normals(DType::f32, 120, 2), dsum = normals(DType::bf16, 120, 3);
  Array transposed(DType::bf16, std::size_t{120}), dx(DType::f32, std::size_t{120}),
      expected(DType::f32, std::size_t{120});
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 40; ++c)
      std::memcpy(transposed.data() + 2 * (3 * c + r), dsum.data() + 2 * (40 * r + c), 2);
  }
  Backward backward = backward_of({Kind::layer, DType::f32, DType::bf16, DType::f32, 40}, x, dy, shape, normalized);
  backward.dsum = const_view(dsum, shape);
  backward.dx = view(expected, shape);
  run(backward);
  backward.dsum = {transposed.data(), DType::bf16, shape, apart};
  backward.dx = view(dx, shape);
  run(backward);
  EXPECT_EQ(bytes_of(dx), bytes_of(expected));
}

TEST(Backward_Sum, HasTheBitsOfTheTwoStepsWithStreamingStores) {
  const std::size_t cols = 1024, rows = 2500;
  const Shape shape = {static_cast<std::int64_t>(rows), 1024}, normalized = {1024};
  const Array x = normals(DType::f32, rows * cols, 1), dsum = normals(DType::f32, rows * cols, 3);
  Array apart(DType::f32, rows * cols), dx(DType::f32, rows * cols);
  Backward backward = backward_of({Kind::layer, DType::f32, DType::f32, DType::f32, cols}, x, x, shape, normalized);
  backward.dx = view(apart, shape);
  run(backward);
  backward.dsum = const_view(dsum, shape);
  backward.dx = view(dx, shape);
  run(backward, pool_executor(2));
  EXPECT_EQ(bytes_of(dx), bytes_of(added(apart, dsum, DType::f32)));
}

}  // namespace
}  // namespace evenorm::testing

// The memory that a worker takes: every mixture of types and layouts fits into it, and it is no more than is promised.
#include <gtest/gtest.h>

#include <cstring>

#include "contracts/harness.hpp"
#include "problem/validate.hpp"
#include "rows/rows.hpp"
#include "run/schedule.hpp"
#include "support/names.hpp"
#include "support/sanitized.hpp"
#include "support/stack.hpp"

namespace evenorm {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::runnable_targets;
using testing::stack_used_by;
using Shape = std::vector<std::int64_t>;

// What takes the most scratch: x and y strided and of other types than the arithmetic, parameters gathered and
// converted. x lies in a few elements, so that rows can be long.
void try_most_scratch(DType x_type, DType y_type, std::int64_t cols, internal::Target target) {
  const Array x_values = contracts::make_input("normal", x_type, static_cast<std::size_t>(cols));
  const Array weight = contracts::make_weight(DType::f64, 1), bias = contracts::make_bias(DType::f32, 1);
  const Shape shape = {4, cols}, axes = {1}, parameter = {cols}, x_strides = {0, 1}, y_strides = {1, 4}, zero = {0};
  const auto rows = static_cast<std::size_t>(4 * cols);
  Array y(y_type, rows), dense_y(y_type, rows), dense_x(x_type, std::size_t{0});
  for (int r = 0; r < 4; ++r) dense_x.append(x_values);
  Forward forward;
  forward.x = {x_values.data(), x_type, shape, x_strides};
  forward.y = {y.data(), y_type, shape, y_strides};
  forward.axes = axes;
  forward.weight = {weight.data(), DType::f64, parameter, zero};
  forward.bias = {bias.data(), DType::f32, parameter, zero};
  forward.zero_centered = true;
  internal::run_on(target, forward);
  forward.x = {dense_x.data(), x_type, shape, {}};
  forward.y = {dense_y.data(), y_type, shape, {}};
  internal::run_on(target, forward);
  const std::size_t bytes = size_of(y_type);
  bool same = true;
  for (std::size_t i = 0; i < rows && same; ++i) {
    const std::size_t r = i / static_cast<std::size_t>(cols), c = i % static_cast<std::size_t>(cols);
    same = std::memcmp(y.data() + (c * 4 + r) * bytes, dense_y.data() + i * bytes, bytes) == 0;
  }
  EXPECT_TRUE(same) << name(x_type) << " to " << name(y_type) << ", " << cols << " columns on "
                    << internal::name(target);
}

TEST(Forward_Scratch, ScratchHoldsEveryMixtureOfTypes) {
  for (const internal::Target target : runnable_targets()) {
    for (const DType x_type : kAllTypes) {
      for (const DType y_type : kAllTypes) {
        for (const std::int64_t cols : {5, 700, 1024, 5000}) try_most_scratch(x_type, y_type, cols, target);
      }
    }
  }
}

TEST(Forward_Scratch, ScratchHoldsTheJoinTreesOfLongRows_Slow) {
  for (const auto& [x_type, y_type] : {std::pair{DType::f32, DType::f64}, std::pair{DType::f32, DType::bf16},
                                       std::pair{DType::bf16, DType::f64}, std::pair{DType::f64, DType::f32}}) {
    try_most_scratch(x_type, y_type, (std::int64_t{1} << 23) - 1, runnable_targets()[0]);
  }
}

TEST(Forward_Scratch, AWorkerTakesAtMost64KiB) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers put more between the objects on a stack";
  constexpr std::size_t kRows = 40;
  const std::size_t nothing = stack_used_by([] {});
  for (const internal::Target target : runnable_targets()) {
    const internal::Kernels& kernels = internal::kernels_of(target);
    for (const DType dtype : kAllTypes) {
      for (const std::int64_t cols : {3, 384, 5000}) {
        const Array x = contracts::make_input("mean_1e4", dtype, kRows * static_cast<std::size_t>(cols));
        const Array weight = contracts::make_weight(DType::f64, static_cast<std::size_t>(cols));
        Array y(DType::bf16, x.size());
        const Shape shape = {cols, kRows}, parameter = {cols}, axes = {0};
        Forward forward;
        forward.x = {x.data(), dtype, shape, {}};
        forward.y = {y.data(), DType::bf16, shape, {}};
        forward.axes = axes;
        if (dtype == DType::f64) forward.weight = {weight.data(), DType::f64, parameter, {}};
        const internal::Problem problem = internal::validate(forward);
        const internal::ForwardPlan plan = internal::make_plan(problem, {});
        const std::size_t used =
            stack_used_by([&] { internal::run_forward(kernels, problem, plan, 0, kRows); }) - nothing;
        EXPECT_LE(used, 65536u) << name(dtype) << ", " << cols << " columns on " << internal::name(target);
        EXPECT_GT(used, 4096u);
      }
    }
  }
}

}  // namespace
}  // namespace evenorm

// The stack that a call takes, whole: of the calling thread, which describes, validates, shares out and works; and of
// a worker of its own.
#include <gtest/gtest.h>

#include "run/schedule.hpp"
#include "support/fused.hpp"
#include "support/gradient_rows.hpp"
#include "support/sanitized.hpp"
#include "support/stack.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::runnable_targets;
using internal::run_on;

constexpr std::size_t kPromised = 65536;

void expect_promise_kept(const std::string& what, const std::function<void()>& call) {
  static const std::size_t nothing = stack_used_by([] {});
  const std::size_t used = stack_used_by(call) - nothing;
  EXPECT_LE(used, kPromised) << what;
  EXPECT_GT(used, 4096u) << what;
}

// Alone, and as one of two threads: the caller has a share then.
std::vector<Executor> executors() { return {Executor{}, contracts::reversed_executor(2)}; }

struct CallerStack : ::testing::TestWithParam<DType> {
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers put more between the objects on a stack";
  }
};

TEST_P(CallerStack, ForwardTakesAtMost64KiB) {
  for (const std::size_t cols : {3, 384, 5000, 300000}) {
    const std::size_t rows = cols == 300000 ? 1 : 40;
    const Array x = contracts::make_input("mean_1e4", GetParam(), rows * cols);
    const Array weight = contracts::make_weight(DType::f32, cols);
    Array y(DType::bf16, x.size());
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(cols), static_cast<std::int64_t>(rows)};
    const std::vector<std::int64_t> across = {0}, parameter = {static_cast<std::int64_t>(cols)};
    for (const internal::Target target : runnable_targets()) {
      for (const Executor& executor : executors()) {
        Forward forward;
        forward.x = {x.data(), GetParam(), shape, {}};
        forward.y = {y.data(), DType::bf16, shape, {}};
        forward.axes = across;
        forward.weight = {weight.data(), DType::f32, parameter, {}};
        expect_promise_kept(std::to_string(cols) + " columns on " + std::string(internal::name(target)),
                            [&] { run_on(target, forward, executor); });
        expect_promise_kept("a plan of " + std::to_string(cols) + " columns", [&] { Plan(forward).run(executor); });
      }
    }
  }
}

TEST_P(CallerStack, FusedFormsTakeAtMost64KiB) {
  using enum DType;
  for (const DType y : {f64, f32, bf16, i8}) {
    for (const std::size_t cols : {700, 5000, 70000}) {
      for (const bool wide : {false, true}) {
        const DType other = GetParam() == f16 ? bf16 : f16, parameters = wide ? f64 : other;
        FusedOperation op{contracts::Operation{Kind::layer, GetParam(), y, parameters, parameters, true, 1e-5, cols}};
        op.residual = other;
        if (y != i8) {
          op.y2 = other;
          op.weight2 = op.bias2 = parameters;
        }
        const FusedInputs inputs = fused_inputs(op, cols == 70000 ? 1 : 20, 0);
        for (const internal::Target target : runnable_targets()) {
          for (const Executor& executor : executors()) {
            const contracts::Runner measure = [&](const Forward& forward, const Executor&) {
              expect_promise_kept(op.name() + " on " + std::string(internal::name(target)),
                                  [&] { run_on(target, forward, executor); });
              if (target != internal::active_target()) return;
              expect_promise_kept("a plan of " + op.name(), [&] { Plan(forward).run(executor); });
            };
            run_fused(measure, op, inputs, {});
          }
        }
      }
    }
  }
}

TEST_P(CallerStack, GradientsTakeAtMost64KiB) {
  for (const std::size_t cols : {3, 700, 5000, 100000}) {
    contracts::BackwardOperation op = contracts::same_type_backward(Kind::layer, GetParam(), cols);
    for (const DType dx : kAllTypes) {
      op.dx = dx;
      const contracts::BackwardInputs inputs =
          inputs_of(op, {"normal", "mean_1e6"}, {"normal"}, cols == 100000 ? 2 : 20);
      for (const internal::Target target : runnable_targets()) {
        for (const Executor& executor : executors()) {
          const contracts::BackwardRunner measure = [&](const Backward& backward, const Executor&) {
            expect_promise_kept(op.name() + " on " + std::string(internal::name(target)),
                                [&] { run_on(target, backward, executor); });
          };
          run_backward(measure, op, inputs);
        }
      }
    }
  }
}

// Rows that are done anew, gathered, for two outputs: the longest way that a row can take.
TEST_P(CallerStack, ExtremeRowsOfTwoOutputsTakeAtMost64KiB) {
  for (const std::int64_t cols : {700, 1509, 4169}) {
    const std::vector<std::int64_t> shape = {4, cols}, strides = {1, 4}, parameter = {cols}, rows = {4};
    const auto elements = static_cast<std::size_t>(4 * cols);
    const Array x(GetParam(), elements), weight(DType::f16, static_cast<std::size_t>(cols));
    std::vector<double> mean(4), rstd(4);
    for (const DType y_type : kAllTypes) {
      Array y(y_type, elements), y2(DType::f16, elements);
      Forward forward;
      forward.x = {x.data(), GetParam(), shape, strides};
      forward.y = {y.data(), y_type, shape, strides};
      forward.y2 = {y2.data(), DType::f16, shape, strides};
      forward.weight = forward.bias = forward.weight2 = forward.bias2 = {weight.data(), DType::f16, parameter, {}};
      forward.mean = {mean.data(), DType::f64, rows, {}};
      forward.rstd = {rstd.data(), DType::f64, rows, {}};
      forward.normalized_shape = parameter;
      for (const internal::Target target : runnable_targets()) {
        expect_promise_kept(std::to_string(cols) + " columns to " + std::string(name(y_type)) + " on " +
                                std::string(internal::name(target)),
                            [&] { run_on(target, forward); });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CallerStack, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace evenorm::testing

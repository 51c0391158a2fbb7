// The stack that a call uses in total: on the calling thread, which validates, shares out work and computes, and on a
// worker thread.
#include <gtest/gtest.h>
#include <cstring>

#include "contracts/harness.hpp"
#include "problem/validate.hpp"
#include "rows/passes.hpp"
#include "run/schedule.hpp"
#include "sharded/steps.hpp"
#include "support/fused.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/stack.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::runnable_targets;
using internal::run_on;

#if defined(EVENORM_UNOPTIMIZED)  // as tools/mutants builds the kernels, which then keep every vector on the stack
constexpr std::size_t kPromised = 65536 + 8192;
#else
constexpr std::size_t kPromised = 65536;
#endif

void expect_promise_kept(const std::string& what, const std::function<void()>& call) {
  static const std::size_t nothing = stack_used_by([] {});
  const std::size_t used = stack_used_by(call) - nothing;
  EXPECT_LE(used, kPromised) << what;
  EXPECT_GT(used, 4096u) << what;
}

// Alone, and as one of two threads, where the caller takes a share of the work.
std::vector<Executor> executors() { return {Executor{}, contracts::reversed_executor(2)}; }

struct CallerStack : ::testing::TestWithParam<DType> {
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers add space between the objects on a stack";
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
    for (const std::size_t cols : {700, 2048, 5000, 14100, 70000}) {
      for (const bool wide : {false, true}) {
        const DType other = GetParam() == f16 ? bf16 : f16, parameters = wide ? f64 : other;
        FusedOperation op{contracts::Operation{Kind::layer, GetParam(), y, parameters, parameters, true, 1e-5, cols}};
        op.residual = other;
        const FusedLayout layout{.vectors_apart = true};  // parameters are gathered too
        const FusedInputs inputs = fused_inputs(op, cols > 10000 ? 1 : 20, cols == 2048 ? 5 : 0);
        for (const internal::Target target : runnable_targets()) {
          for (const Executor& executor : executors()) {
            const contracts::Runner measure = [&](const Forward& forward, const Executor&) {
              expect_promise_kept(op.name() + " on " + std::string(internal::name(target)),
                                  [&] { run_on(target, forward, executor); });
              if (target != internal::active_target()) return;
              expect_promise_kept("a plan of " + op.name(), [&] { Plan(forward).run(executor); });
            };
            run_fused(measure, op, inputs, layout);
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
      contracts::BackwardInputs inputs = inputs_of(op, {"normal", "mean_1e6"}, {"normal"}, cols == 100000 ? 2 : 20);
      if (dx == DType::f32) {  // sums that leave the range of f32 are found anew
        inputs.dy = Array(GetParam(), std::vector<double>(inputs.dy.size(), 3e38));
      }
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

// Groups of channels, whose lines lie along or across vectors; both passes, with statistics found anew.
TEST_P(CallerStack, GroupsTakeAtMost64KiB) {
  const std::int64_t positions = 5000, channels = 10, groups = 16;
  const std::vector<std::int64_t> shape = {2, groups, channels, positions}, parameter = {1, groups, channels, 1};
  const auto all_channels = static_cast<std::size_t>(groups * channels);
  const Array x = contracts::make_input("mean_1e4", GetParam(), 2 * all_channels * static_cast<std::size_t>(positions));
  const Array weight = contracts::make_weight(DType::f16, all_channels);
  Array y(GetParam(), x.size()), dweight(DType::f32, all_channels);
  const std::vector<std::int64_t> axes = {2, 3}, along,
                                  across = {groups * channels * positions, channels, 1, groups * channels};
  for (const std::vector<std::int64_t>& strides : {along, across}) {
    Forward forward;
    forward.x = {x.data(), GetParam(), shape, strides};
    forward.y = {y.data(), GetParam(), shape, strides};
    forward.axes = axes;
    forward.weight = {weight.data(), DType::f16, parameter, {}};
    Backward backward;
    backward.x = backward.dy = forward.x;
    backward.dx = forward.y;
    backward.axes = axes;
    backward.weight = forward.weight;
    backward.dweight = {dweight.data(), DType::f32, parameter, {}};
    for (const internal::Target target : runnable_targets()) {
      for (const Executor& executor : executors()) {
        const std::string where = (strides.empty() ? "along on " : "across on ") + std::string(internal::name(target));
        expect_promise_kept(where, [&] { run_on(target, forward, executor); });
        expect_promise_kept("gradients " + where, [&] { run_on(target, backward, executor); });
      }
    }
  }
}

// A copy of the problem describes each set.
TEST_P(CallerStack, GradientsOfSetsTakeAtMost64KiB) {
  for (const std::int64_t cols : {700, 5000}) {
    const std::vector<std::int64_t> shape = {cols, 8, 5}, axes = {0}, parameter = {cols, 8, 1};
    const Array x = contracts::make_input("normal", GetParam(), static_cast<std::size_t>(40 * cols));
    const Array weight(DType::f16, static_cast<std::size_t>(8 * cols));
    for (const DType dx_type : kAllTypes) {
      Array dx(dx_type, x.size()), dweight(DType::f32, weight.size()), dbias = dweight;
      Backward backward;
      backward.x = backward.dy = {x.data(), GetParam(), shape, {}};
      backward.axes = axes;
      backward.weight = {weight.data(), DType::f16, parameter, {}};
      backward.dx = {dx.data(), dx_type, shape, {}};
      backward.dweight = {dweight.data(), DType::f32, parameter, {}};
      backward.dbias = {dbias.data(), DType::f32, parameter, {}};
      for (const internal::Target target : runnable_targets()) {
        for (const Executor& executor : executors()) {
          expect_promise_kept(std::to_string(cols) + " columns to " + std::string(name(dx_type)) + " on " +
                                  std::string(internal::name(target)),
                              [&] { run_on(target, backward, executor); });
        }
      }
    }
  }
}

// Out-of-range rows that are gathered take the longest path.
TEST_P(CallerStack, OutOfRangeRowsTakeAtMost64KiB) {
  for (const std::int64_t cols : {700, 1509, 4169}) {
    const std::vector<std::int64_t> shape = {4, cols}, strides = {1, 4}, parameter = {cols}, rows = {4};
    const auto elements = static_cast<std::size_t>(4 * cols);
    const Array x(GetParam(), elements), weight(DType::f16, static_cast<std::size_t>(cols));
    std::vector<double> mean(4), rstd(4);
    for (const DType y_type : kAllTypes) {
      Array y(y_type, elements);
      Forward forward;
      forward.x = {x.data(), GetParam(), shape, strides};
      forward.y = {y.data(), y_type, shape, strides};
      forward.weight = forward.bias = {weight.data(), DType::f16, parameter, {}};
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

TEST_P(CallerStack, RowsOfShardsTakeAtMost64KiB) {
  const std::size_t nothing = stack_used_by([] {});
  for (const std::int64_t cols : {3, 1024, 5000}) {
    const Array x = contracts::make_input("huge", GetParam(), 40 * static_cast<std::size_t>(cols));
    const std::int64_t shape[] = {cols, 40}, axes[] = {0};
    const Cuts cuts(Columns{cols}, 0);
    for (const internal::Target target : runnable_targets()) {
      for (const Kind kind : contracts::kBothKinds) {
        for (const DType y_type : {GetParam(), DType::f64}) {
          Array y(y_type, x.size());
          internal::Problem p = internal::validate(
              Forward{.kind = kind, .x = {x.data(), GetParam(), shape}, .y = {y.data(), y_type, shape}, .axes = axes});
          const bool wide = internal::arithmetic_type(p) == DType::f64;
          const internal::Kernels& kernels = internal::kernels_of(target);
          const std::size_t numbers = cuts.numbers(Pass::forward, kind, wide);
          std::vector<double> message(p.rows * numbers);
          std::vector<Moments> moments(p.rows);
          const internal::Messages all{message.data(), message.size()};
          const auto expect_kept = [&](const std::function<void()>& body) {
            EXPECT_LE(stack_used_by(body) - nothing, kPromised)
                << name(GetParam()) << " " << cols << " on " << internal::name(target);
          };
          expect_kept([&] { internal::find_moments_on(target, cuts, p, message); });
          expect_kept([&] { internal::join_shards(cuts, kind, wide, all, moments); });
          p.moments = moments.data();
          const internal::ForwardPlan plan = internal::make_plan(p, {});
          expect_kept([&] { internal::run_forward(kernels, p, plan, 0, p.rows); });
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CallerStack, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return std::string(name(test.param)); });

// --- workers: every mixture of types and layouts fits their stack --------------------------------------------------

using Shape = std::vector<std::int64_t>;

// The case with the most scratch: x and y are strided and differ in type from the arithmetic, and parameters are
// gathered and converted. x occupies few elements, so that rows can be long.
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

TEST(Forward_Scratch, HoldsEveryMixtureOfTypes) {
  for (const internal::Target target : runnable_targets()) {
    for (const DType x_type : kAllTypes) {
      for (const DType y_type : kAllTypes) {
        for (const std::int64_t cols : {5, 700, 1024, 5000}) try_most_scratch(x_type, y_type, cols, target);
      }
    }
  }
}

TEST(Forward_Scratch, HoldsTheJoinTreesOfLongRows_Slow) {
  for (const auto& [x_type, y_type] : {std::pair{DType::f32, DType::f64}, std::pair{DType::f32, DType::bf16},
                                       std::pair{DType::bf16, DType::f64}, std::pair{DType::f64, DType::f32}}) {
    try_most_scratch(x_type, y_type, (std::int64_t{1} << 23) - 1, runnable_targets()[0]);
  }
}

}  // namespace
}  // namespace evenorm::testing

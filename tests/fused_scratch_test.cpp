// The memory that a worker takes for the fused forms, where they take the most: no more than is promised. That all of
// it fits into the worker's scratch, builds with assertions see in the same runs.
#include <gtest/gtest.h>

#include "problem/validate.hpp"
#include "rows/rows.hpp"
#include "run/schedule.hpp"
#include "sharded/rows.hpp"
#include "support/fused.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/stack.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::kAllTypes;
using contracts::kBothKinds;
using contracts::runnable_targets;

constexpr std::size_t kPromised = 65536;

// What all that a schedule calls takes, on `target`, of one call over all rows.
void expect_promise_kept(internal::Target target, const FusedOperation& op, const FusedInputs& inputs) {
  const internal::Kernels& kernels = internal::kernels_of(target);
  const std::string where = op.name() + " on " + std::string(internal::name(target));
  static const std::size_t nothing = stack_used_by([] {});
  const auto expect_kept = [&](const char* what, const std::function<void()>& call) {
    const std::size_t used = stack_used_by(call) - nothing;
    EXPECT_LE(used, kPromised) << what << ", " << where;
    EXPECT_GT(used, 4096u) << what << ", " << where;
  };
  const contracts::Runner measure = [&](const Forward& forward, const Executor&) {
    const internal::Problem p = internal::validate(forward);
    const internal::ForwardPlan plan = internal::make_plan(p, {});
    expect_kept("forward", [&] { internal::run_forward(kernels, p, plan, 0, p.rows); });
    if (p.cols <= internal::kBlock || p.scale.data != nullptr) return;
    internal::MomentNode moments{};
    internal::RowScalars scalars{0, 0, 1, true, false};
    const std::size_t blocks = internal::blocks_of(p.cols);
    expect_kept("block_moments", [&] { moments = internal::block_moments(kernels, p, 0, 0, blocks); });
    expect_kept("map_blocks", [&] { internal::map_blocks(kernels, p, plan, 0, scalars, 0, blocks); });
  };
  run_fused(measure, op, inputs,
            {.vectors_apart = op.norm.arithmetic() == DType::f32 || !op.y2});  // else y2 has a look of its own
}

// Plain rows and extreme ones.
void expect_promise_kept(const FusedOperation& op) {
  const std::size_t rows = op.norm.cols > 2000 ? 3 : 40;
  for (const std::size_t first : {0, 5}) {
    const FusedInputs inputs = fused_inputs(op, rows, first);
    for (const internal::Target target : runnable_targets()) expect_promise_kept(target, op, inputs);
  }
}

class Fused_Scratch : public ::testing::TestWithParam<DType> {};

// Everything converted, parameters gathered besides, and as many columns of them as are kept; in f64 arithmetic, only
// what both outputs may have in one look.
TEST_P(Fused_Scratch, TwoOutputsOfASum) {
  if (kSanitized) GTEST_SKIP() << "sanitizers put more between the objects on a stack";
  using enum DType;
  for (const DType y : kAllTypes) {
    for (const std::size_t cols : {700, 2048, 5000}) {
      const bool wide = y == f64 || GetParam() == f64;
      const DType other = y == f16 ? bf16 : f16, parameters = wide ? f64 : other;
      FusedOperation op{contracts::Operation{Kind::layer, GetParam(), y, parameters, parameters, !wide, 1e-5, cols}};
      op.residual = GetParam() == other ? f32 : other;
      op.y2 = other;
      op.weight2 = op.bias2 = parameters;
      expect_promise_kept(op);
    }
  }
}

TEST_P(Fused_Scratch, Int8OfASum) {
  if (kSanitized) GTEST_SKIP() << "sanitizers put more between the objects on a stack";
  using enum DType;
  for (const std::optional<DType> wide : {std::optional<DType>(), std::optional(f64)}) {
    for (const std::size_t cols : {700, 2048, 4096, 5000, 14100}) {
      FusedOperation op{contracts::Operation{Kind::layer, GetParam(), i8, bf16, wide, true, 1e-5, cols}};
      op.residual = GetParam() == f16 ? bf16 : f16;
      expect_promise_kept(op);
    }
  }
}

TEST_P(Fused_Scratch, RowsOfShards) {
  if (kSanitized) GTEST_SKIP() << "sanitizers put more between the objects on a stack";
  const std::size_t nothing = stack_used_by([] {});
  for (const std::int64_t cols : {3, 1024, 5000}) {
    const Array x = contracts::make_input("huge", GetParam(), 40 * static_cast<std::size_t>(cols));
    const std::int64_t shape[] = {cols, 40}, axes[] = {0};
    const Cuts cuts(Columns{cols}, 0);
    for (const internal::Target target : runnable_targets()) {
      for (const Kind kind : kBothKinds) {
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
          expect_kept([&] { internal::moments_of_shards(kernels, p, cuts, 0, p.rows, message.data()); });
          expect_kept([&] { internal::join_shards(cuts, kind, wide, all, moments); });
          p.moments = moments.data();
          const internal::ForwardPlan plan = internal::make_plan(p, {});
          expect_kept([&] { internal::run_forward(kernels, p, plan, 0, p.rows); });
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Fused_Scratch, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace evenorm::testing

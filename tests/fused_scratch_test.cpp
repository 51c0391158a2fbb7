// The memory that a worker takes for the fused forms, where they take the most: no more than is promised. That all of
// it fits into the worker's scratch, builds with assertions see in the same runs.
#include <gtest/gtest.h>

#include "rows/rows.hpp"
#include "schedule.hpp"
#include "support/fused.hpp"
#include "support/sanitized.hpp"
#include "support/shards.hpp"
#include "support/stack.hpp"
#include "validate.hpp"

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
    const internal::ForwardScratch plan = internal::forward_scratch(p, true);
    expect_kept("forward", [&] { internal::run_forward(kernels, p, plan, 0, p.rows); });
    if (p.cols <= internal::kBlock || p.scale.data != nullptr || p.moments != nullptr) return;
    internal::MomentNode moments{};
    internal::RowScalars scalars{0, 0, 1, true, false};
    const std::size_t blocks = parts_of(p.cols);
    expect_kept("block_moments", [&] { moments = internal::block_moments(kernels, p, 0, 0, blocks); });
    expect_kept("map_blocks", [&] { internal::map_blocks(kernels, p, 0, scalars, 0, blocks); });
  };
  run_fused(measure, op, inputs, {.vectors_apart = !is_wide(op) || !op.y2});  // else y2 has a look of its own
}

// Plain rows and extreme ones; with moments given and without.
void expect_promise_kept(const FusedOperation& op) {
  const std::size_t rows = op.norm.cols > 2000 ? 3 : 40;
  for (const std::size_t first : {0, 5}) {
    FusedInputs inputs = fused_inputs(op, rows, first);
    for (const internal::Target target : runnable_targets()) {
      inputs.moments = {};
      expect_promise_kept(target, op, inputs);
      inputs.moments = joined_moments(target, op, inputs.x, {op.norm.cols});
      expect_promise_kept(target, op, inputs);
    }
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

TEST_P(Fused_Scratch, PartsAndTheirJoin) {
  if (kSanitized) GTEST_SKIP() << "sanitizers put more between the objects on a stack";
  const std::size_t nothing = stack_used_by([] {});
  for (const std::size_t cols : {3, 1024, 5000}) {
    const Array x = contracts::make_input("huge", GetParam(), 40 * cols);
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(cols), 40}, axes = {0};
    for (const internal::Target target : runnable_targets()) {
      for (const Kind kind : kBothKinds) {
        for (const bool wide : {false, true}) {
          const internal::Problem p =
              internal::validate(RowMoments{kind, {x.data(), GetParam(), shape, {}}, {}, axes, wide});
          const internal::Kernels& kernels = internal::kernels_of(target);
          std::vector<Moments> parts(40 * parts_of(cols));
          const std::size_t used =
              stack_used_by([&] { internal::parts_of_rows(kernels, p, 0, parts.size(), parts.data()); }) - nothing;
          EXPECT_LE(used, kPromised) << name(GetParam()) << " " << cols << " on " << internal::name(target);
          EXPECT_GT(used, 4096u);
          EXPECT_LE(stack_used_by([&] { internal::join_on(target, kind, parts, wide); }) - nothing, kPromised);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Fused_Scratch, ::testing::ValuesIn(kAllTypes),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace evenorm::testing

// Every form of fused pass in every layout and place, shared out over threads, and with non-temporal stores: the bits
// of the separate steps. Then properties of two outputs. fused_residual_test.cpp and fused_int8_test.cpp have the other
// forms.
#include <gtest/gtest.h>

#include <limits>

#include "run/dispatch.hpp"
#include "support/fused.hpp"
#include "support/names.hpp"

namespace evenorm::testing {
namespace {

// A residual with and without its sum, a second y, and y of i8 with scales per row or a given scale.
std::vector<FusedOperation> forms(DType dtype, std::size_t cols) {
  const FusedOperation plain{contracts::same_type(Kind::layer, dtype, cols)};
  FusedOperation residual = plain, second = plain, int8 = plain;
  residual.residual = dtype;
  residual.residual_scale = cols % 2 == 0 ? 0.3 : 1;
  second.y2 = second.weight2 = second.bias2 = dtype;
  int8.norm.y = DType::i8;
  std::vector<FusedOperation> all = {residual, second, second, int8, int8, int8};
  all[2].residual = all[4].residual = all[5].residual = dtype;
  all[5].given_scale = 0.02;
  return all;
}

class Contract_FusedWays : public ::testing::TestWithParam<DType> {};

// Every kind of row in one batch.
TEST_P(Contract_FusedWays, HaveTheSameBits) {
  for (const std::size_t cols : {33, 200, 1300}) {
    for (const FusedOperation& op : forms(GetParam(), cols)) {
      expect_fused_is_composed(op, fused_inputs(op, 36), ways_of(op).size());
    }
  }
}

TEST_P(Contract_FusedWays, HaveTheSameBitsOverThreads) {
  for (const auto& [rows, cols] : {std::pair<std::size_t, std::size_t>{300, 300}, {70, 1025}, {2, 70001}}) {
    for (const FusedOperation& op : forms(GetParam(), cols)) {
      const FusedInputs inputs = cols < 70000 ? fused_inputs(op, rows) : normal_inputs(op, rows);
      FusedLayout at_x, swapped;
      if (op.residual) at_x.sum = Place::of_x;
      if (!op.residual && op.norm.y != DType::i8) at_x.y = Place::of_x;
      expect_fused_is_composed(op, inputs, FusedWay{"7 threads", {}, pool_executor(7)});
      expect_fused_is_composed(op, inputs, FusedWay{"64 tasks", at_x, contracts::reversed_executor(64)});
      if (!op.residual || op.norm.y == DType::i8) continue;
      swapped = {.y = Place::of_x, .sum = Place::of_residual, .odd_addresses = true};
      expect_fused_is_composed(op, inputs, FusedWay{"2 threads, in place", swapped, pool_executor(2)});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedWays, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return word(test.param); });

TEST(Contract_FusedWays, HaveTheSameBitsWithStreamingStores) {
  for (const FusedOperation& op : forms(DType::f32, 1040)) {
    if (op.norm.y == DType::i8) continue;
    const FusedInputs inputs = normal_inputs(op, 2100);
    expect_fused_is_composed(op, inputs, FusedWay{"2 threads", {}, pool_executor(2)});
    expect_fused_is_composed(op, inputs, FusedWay{"y at x", {.y = Place::of_x, .offset = 1}, {}});
  }
}

// --- two outputs from one pass over x: each has the bits that it has alone -----------------------------------------

using contracts::kBothKinds;

FusedOperation with_second(const contracts::Operation& norm, DType y2, std::optional<DType> weight2,
                           std::optional<DType> bias2) {
  FusedOperation op{norm};
  op.y2 = y2;
  op.weight2 = weight2;
  op.bias2 = bias2;
  return op;
}

class Contract_FusedSecond : public ::testing::TestWithParam<DType> {};

TEST_P(Contract_FusedSecond, HasTheBitsOfASeparatePass) {
  std::size_t turn = 0;
  for (const Kind kind : kBothKinds) {
    for (const bool residual : {false, true}) {
      for (const std::size_t cols : {1, 15, 16, 17, 64, 127, 768, 1023, 1024, 1025, 2045, 3000, 12000}) {
        FusedOperation op = with_second(contracts::same_type(kind, GetParam(), cols, turn % 2 == 0), GetParam(),
                                        GetParam(), GetParam());
        if (turn % 4 == 3) op.bias2.reset();
        op.norm.zero_centered = op.norm.weight && turn % 3 == 0;
        if (residual) op.residual = GetParam();
        expect_fused_is_composed(op, fused_inputs(op, cols > 2000 ? 2 : 17, turn * 5));
        ++turn;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Contract_FusedSecond, ::testing::ValuesIn(contracts::kAllTypes),
                         [](const auto& test) { return word(test.param); });

// If the two arithmetics differ, each output uses its own. y2 has its own type.
TEST(Contract_FusedSecond, HandlesMixturesOfTypes) {
  using enum DType;
  struct Second {
    DType y2;
    std::optional<DType> weight2, bias2;
  };
  const Second seconds[] = {{f32, f32, f32}, {bf16, f64, {}}, {f64, f32, f32}, {f16, bf16, f16}, {f32, {}, f64}};
  const contracts::Operation norms[] = {{Kind::layer, bf16, f32, f32, f32, false, 1e-5, 0},
                                        {Kind::rms, f32, bf16, f64, {}, false, 1e-5, 0},
                                        {Kind::layer, f16, f16, f32, {}, true, 1e-5, 0},
                                        {Kind::layer, f64, f32, bf16, f64, false, 1e-5, 0},
                                        {Kind::rms, bf16, f64, {}, f16, false, 1e-5, 0}};
  for (contracts::Operation norm : norms) {
    for (const Second& second : seconds) {
      if (norm.zero_centered && !second.weight2) continue;
      for (const std::size_t cols : {17, 129, 1100}) {
        norm.cols = cols;
        FusedOperation op = with_second(norm, second.y2, second.weight2, second.bias2);
        if (cols == 129) op.residual = f32;
        expect_fused_is_composed(op, fused_inputs(op, cols > 1000 ? 5 : 17, cols), 3);
      }
    }
  }
}

// All four parameters are converted and gathered, with all else that takes scratch, up to the longest rows that fit.
TEST(Contract_FusedSecond, HandlesParametersThatFillTheScratch) {
  using enum DType;
  for (const std::size_t cols : {2000, 2048, 2049}) {
    FusedOperation op = with_second({Kind::layer, bf16, f16, f16, bf16, true, 1e-5, cols}, bf16, f16, bf16);
    op.residual = f16;
    expect_fused_is_composed(op, fused_inputs(op, 4), FusedWay{"vectors apart", {.vectors_apart = true}, {}});
  }
}

// A plan keeps what it knows about one pass. If it needs two passes, it keeps nothing about either.
TEST(Contract_FusedSecond, IsTheSameWhenAPlanRunsAgain) {
  using enum DType;
  const contracts::Runner planned = [](const Forward& forward, const Executor& executor) {
    const Plan plan(forward);
    plan.run(executor);
    // Only if no output overwrites an input.
    if (forward.y.data != forward.x.data && forward.sum.data != forward.x.data) Plan(plan).run(executor);
  };
  for (const DType weight2 : {f32, f64}) {
    for (const contracts::Order order : {contracts::Order::rows_first, contracts::Order::columns_first}) {
      const FusedOperation op = with_second(contracts::same_type(Kind::layer, f32, 1100), f32, weight2, f32);
      const FusedInputs inputs = fused_inputs(op, 17);
      const FusedOutcome expected = one_by_one(internal::active_target(), op, inputs);
      for (const Place place : {Place::own, Place::of_x}) {
        const FusedLayout layout{.y = place, .y2_order = order};
        const FusedOutcome outcome = run_fused(planned, op, inputs, layout);
        EXPECT_EQ(outcome.difference_to(asked_for(expected, layout)), "") << name(weight2);
        EXPECT_TRUE(outcome.kept_inside);
      }
    }
  }
}

// A NaN among one pair of parameters does not reach the other output.
TEST(Contract_FusedSecond, NansInOnePairOfParametersDoNotReachTheOtherOutput) {
  const FusedOperation op =
      with_second(contracts::same_type(Kind::layer, DType::f32, 200), DType::f32, DType::f32, DType::f32);
  for (const bool of_second : {false, true}) {
    FusedInputs inputs = fused_inputs(op, 17);
    (of_second ? inputs.weight2 : inputs.bias).set(150, -std::numeric_limits<double>::quiet_NaN());
    expect_fused_is_composed(op, inputs);
  }
}

}  // namespace
}  // namespace evenorm::testing

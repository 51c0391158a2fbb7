// The bits of gradients do not depend on the target, threads, layouts, whether statistics are given, what else is asked
// for, nor the caller's floating-point modes.
#include <gtest/gtest.h>

#include <functional>

#include "contracts/fp_mode.hpp"
#include "support/gradient_rows.hpp"
#include "support/names.hpp"

namespace evenorm::contracts {
namespace {

using evenorm::testing::inputs_of;
using evenorm::testing::Names;

struct Size {
  std::size_t rows, cols;
};

// Rows of every way that a row may be done, and gradients of either size.
const Names kRows = {"normal", "mean_1e6",  "normal",    "constant_0.1", "std_1e30",
                     "normal", "subnormal", "std_1e300", "mean_1e4"};
const Names kGradients = {"normal", "normal", "normal", "std_1e-30", "normal", "std_1e-300", "mean_1e2"};

// One operation, its inputs, and what every other way of it is compared with.
class Ways {
 public:
  Ways(const BackwardOperation& op, Size size, const Names& rows = kRows, const Names& gradients = kGradients)
      : op_(op), inputs_(inputs_of(op, rows, gradients, size.rows)), what_(std::to_string(size.rows) + " x ") {
    what_ += op.name();
    expected_ = run_backward(gradients_on_target(runnable_targets()[0]), op_, inputs_);
    EXPECT_TRUE(expected_.kept_inside) << what_;
    add_statistics(runnable_targets()[0], op.forward, inputs_);
    mean_ = std::exchange(inputs_.mean, {});
    rstd_ = std::exchange(inputs_.rstd, {});
  }

  void try_way(internal::Target target, const BackwardLayout& layout, const Executor& executor, bool with_statistics,
               const std::string& way) {
    inputs_.mean = with_statistics ? mean_ : std::vector<double>();
    inputs_.rstd = with_statistics ? rstd_ : std::vector<double>();
    const BackwardOutcome outcome = run_backward(gradients_on_target(target), op_, inputs_, layout, executor);
    const std::string where = what_ + " on " + std::string(internal::name(target)) + ", " + way;
    EXPECT_TRUE(outcome.has_the_bits_of(expected_)) << where;
    EXPECT_TRUE(outcome.kept_inside) << where;
  }

  // Some of the gradients alone: bit 0 for dx, bit 1 for dgamma, bit 2 for dbeta.
  void try_some_gradients(internal::Target target, unsigned which) {
    BackwardOperation some = op_;
    BackwardOutcome expected = expected_;
    const auto leave_out = [&](unsigned bit, std::optional<DType>& type, Array& gradient) {
      if ((which & bit) != 0) return;
      type.reset();
      gradient = {};
    };
    leave_out(1, some.dx, expected.dx);
    leave_out(2, some.dgamma, expected.dgamma);
    leave_out(4, some.dbeta, expected.dbeta);
    const BackwardOutcome outcome = run_backward(gradients_on_target(target), some, inputs_);
    EXPECT_TRUE(outcome.has_the_bits_of(expected)) << what_ << " on " << internal::name(target) << ", " << some.name();
    EXPECT_TRUE(outcome.kept_inside) << what_ << ", " << some.name();
  }

 private:
  BackwardOperation op_;
  BackwardInputs inputs_;
  std::string what_;
  BackwardOutcome expected_;
  std::vector<double> mean_, rstd_;
};

// In f64, dgamma and dbeta show in which order they were summed; a last rounding to f32 would hide it.
BackwardOperation with_wide_sums(BackwardOperation op) {
  op.dgamma = op.dbeta = DType::f64;
  return op;
}

struct NamedExecutor {
  const char* name;
  Executor executor;
};
std::vector<NamedExecutor> executors() {
  return {{"1 thread", {}},
          {"2 threads", pool_executor(2)},
          {"7 threads", pool_executor(7)},
          {"3 tasks backwards", reversed_executor(3)},
          {"64 tasks backwards", reversed_executor(64)}};
}

struct NamedLayout {
  const char* name;
  BackwardLayout layout;
};
std::vector<NamedLayout> layouts() {
  using enum Order;
  return {{"offsets", {.x = {.offset = 1}, .dy = {.offset = 2}, .dx = {.offset = 3}}},
          {"gaps", {.x = {.gap = 5}, .dy = {.gap = 3}, .dx = {.gap = 1}}},
          {"columns apart", {.x = {.order = columns_apart}, .dy = {.order = columns_apart}, .dx = {.gap = 2}}},
          {"columns first", {.x = {.order = columns_first}, .dy = {}, .dx = {.order = columns_first}}},
          {"dy, dx columns apart", {.x = {}, .dy = {.order = columns_first}, .dx = {.order = columns_apart}}},
          {"reversed", {.x = {.order = reversed}, .dy = {.order = reversed}, .dx = {.order = reversed}}},
          {"odd addresses", {.odd_addresses = true}},
          {"vectors apart", {.vectors_apart = true}},
          {"in place of dy", {.in_place = InPlace::of_dy}},
          {"in place of x", {.in_place = InPlace::of_x}},
          {"in place of dy, columns first", {.dy = {.order = columns_first}, .in_place = InPlace::of_dy}},
          {"in place of x, reversed, odd",
           {.x = {.gap = 1, .order = reversed}, .in_place = InPlace::of_x, .odd_addresses = true}}};
}

void try_threads(Ways& ways) {
  for (const internal::Target target : runnable_targets()) {
    for (const NamedExecutor& e : executors()) {
      for (const bool given : {false, true}) {
        ways.try_way(target, {}, e.executor, given, std::string(e.name) + (given ? ", statistics given" : ""));
      }
    }
  }
}

// Threads and statistics along with layouts, by turns.
void try_layouts(Ways& ways) {
  std::size_t turn = 0;
  for (const internal::Target target : runnable_targets()) {
    for (const NamedLayout& l : layouts()) {
      const bool given = turn % 3 == 0;
      const NamedExecutor e = executors()[turn++ % executors().size()];
      ways.try_way(target, l.layout, e.executor, given,
                   std::string(l.name) + ", " + e.name + (given ? ", statistics given" : ""));
    }
  }
}

void try_gradients(Ways& ways) {
  for (const internal::Target target : runnable_targets()) {
    for (unsigned which = 1; which < 7; ++which) ways.try_some_gradients(target, which);
  }
}

void try_everything(Ways& ways) {
  try_threads(ways);
  try_layouts(ways);
  try_gradients(ways);
}

constexpr Size kSizes[] = {{1, 768}, {64, 768}, {127, 33}, {128, 33}, {1000, 17}, {300, 1025}, {5, 20000}, {3, 40000}};

class Contract_GradientsSameBits : public ::testing::TestWithParam<std::tuple<DType, Size>> {};

TEST_P(Contract_GradientsSameBits, InEveryWayOnEveryTarget) {
  const auto [dtype, size] = GetParam();
  for (const Kind kind : kBothKinds) {
    Ways ways(with_wide_sums(same_type_backward(kind, dtype, size.cols)), size);
    try_everything(ways);
  }
}

std::string test_name(const ::testing::TestParamInfo<std::tuple<DType, Size>>& info) {
  const Size size = std::get<1>(info.param);
  return evenorm::testing::word(std::get<0>(info.param)) + "_" + std::to_string(size.rows) + "x" +
         std::to_string(size.cols) + (size.rows * size.cols > 65536 ? "_Whole" : "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, Contract_GradientsSameBits,
                         ::testing::Combine(::testing::Values(DType::f64, DType::f32, DType::bf16),
                                            ::testing::ValuesIn(kSizes)),
                         test_name);

TEST(Contract_GradientsSameBits, MixturesOfTypes) {
  using enum DType;
  const Operation half{Kind::layer, bf16, bf16, f32, {}, true, 1e-5, 100};
  const Operation wide_dy{Kind::rms, f32, f64, f32, {}, false, 1e-5, 100};
  const Operation no_weight{Kind::layer, f16, f32, {}, {}, false, 1e-5, 100};
  for (const BackwardOperation& op :
       {BackwardOperation{half, bf16, f32, f32}, BackwardOperation{half, f16, f64, bf16},
        BackwardOperation{wide_dy, f32, f32, f64}, BackwardOperation{no_weight, f32, f16, f32}}) {
    Ways ways(op, {130, 100});
    try_threads(ways);
    try_gradients(ways);
  }
}

// Outputs above 8 MiB are written past the caches.
TEST(Contract_GradientsSameBits, OutputsPastTheCaches) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Size size = {8400 / size_of(dtype), 1031};
    Ways ways(same_type_backward(Kind::layer, dtype, size.cols), size, {"normal"}, {"normal"});
    for (const internal::Target target : runnable_targets()) {
      ways.try_way(target, {.dx = {.offset = 1}}, pool_executor(2), false, "2 threads");
      ways.try_way(target, {.in_place = InPlace::of_dy}, {}, false, "in place of dy");
    }
  }
}

TEST(Contract_GradientsSameBits, WhateverTheCallersModes) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const Size size : {Size{70, 33}, Size{130, 65}, Size{3, 9000}}) {
      Ways ways(same_type_backward(Kind::layer, dtype, size.cols), size);
      for (const internal::Target target : runnable_targets()) {
        for (const FpMode mode : unusual_fp_modes()) {
          const FpModeScope scope(mode);
          ways.try_way(target, {}, reversed_executor(3), false, name(mode));
          EXPECT_TRUE(scope.is_as_set()) << name(mode);
        }
      }
    }
  }
}

// A quick test for tools/mutants.
TEST(Contract_GradientsSameBits, OneCaseOnEveryTarget) {
  Ways ways(with_wide_sums(same_type_backward(Kind::layer, DType::f32, 65)), {200, 65}, {"normal"}, {"normal"});
  try_threads(ways);
}

// 29 row blocks for 3 tasks: no run is a third of them.
TEST(Contract_GradientsSameBits, RunsOfRowBlocksAreSubtrees) {
  Ways ways(with_wide_sums(same_type_backward(Kind::rms, DType::f32, 33)), {1900, 33}, {"normal"}, {"normal"});
  for (const std::size_t threads : {2, 3, 64}) {
    ways.try_way(runnable_targets()[0], {}, reversed_executor(threads), false, std::to_string(threads) + " threads");
  }
}

// A row that the forward pass scales, which takes its least element's digits, and whose others cancel.
TEST(Contract_GradientsSameBits, StatisticsGivenOfAScaledRow) {
  BackwardOperation op = same_type_backward(Kind::layer, DType::f32, 3);
  op.forward.weight.reset();
  op.forward.eps = 0;
  BackwardInputs inputs;
  inputs.x = Array(DType::f32, std::vector<double>{0x1p127, -0x1p127, 0x1.8p-148});
  inputs.dy = Array(DType::f32, std::vector<double>{0, 0, 0x1p127});
  for (const internal::Target target : runnable_targets()) {
    inputs.mean = inputs.rstd = {};
    const BackwardOutcome found = run_backward(gradients_on_target(target), op, inputs);
    add_statistics(target, op.forward, inputs);
    EXPECT_TRUE(run_backward(gradients_on_target(target), op, inputs).has_the_bits_of(found)) << internal::name(target);
  }
}

}  // namespace
}  // namespace evenorm::contracts

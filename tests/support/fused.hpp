// A forward pass with all that can be fused into it, over tensors that lie in memory in a chosen way; and the same one
// step after the other, in scalar code around the plain norm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contracts/harness.hpp"

namespace evenorm::testing {

struct FusedOperation {
  contracts::Operation norm;  // norm.y may be i8
  std::optional<DType> residual{};
  double residual_scale = 1;
  bool sum = true;  // where there is a residual
  std::optional<DType> y2{}, weight2{}, bias2{};
  double given_scale = 0;

  DType arithmetic_of_sum() const;
  std::string name() const;
};

struct FusedInputs {
  contracts::Array x, residual, weight, bias, weight2, bias2;
};

// Rows of every way that a row can be done, by turns from number `first` on: far means, constants, zeros, subnormal and
// huge ones, sums that cancel or overflow, NaN and infinity in either.
inline constexpr std::size_t kRowKindCount = 17;  // the first kind is normal
FusedInputs fused_inputs(const FusedOperation& op, std::size_t rows, std::size_t first = 0);
FusedInputs normal_inputs(const FusedOperation& op, std::size_t rows);

enum class Place { own, of_x, of_residual };

// Tensors of x's shape lie `offset` elements past a cache line, y and the sum by one or two more, with `gap` elements
// after each row.
struct FusedLayout {
  Place y = Place::own, sum = Place::own;
  std::size_t offset = 0, gap = 0;
  bool odd_addresses = false;
  bool vectors_apart = false;
  contracts::Order y2_order = contracts::Order::rows_first;
  bool statistics = true;  // are mean and rstd wanted?
};

struct FusedOutcome {
  contracts::Array y, y2, sum, scale;  // empty where there is none
  std::vector<double> mean, rstd;
  bool kept_inside = true;  // nothing else was written

  std::string difference_to(const FusedOutcome& other) const;  // what has other bits; empty: nothing
  FusedOutcome without_statistics() const;
};

// What a call with this layout gives of the outcome.
FusedOutcome asked_for(const FusedOutcome& outcome, const FusedLayout& layout);

FusedOutcome run_fused(const contracts::Runner& run, const FusedOperation& op, const FusedInputs& inputs,
                       const FusedLayout& layout = {}, const Executor& executor = {});

// s = fma(scale, residual, x) rounded to x's type, with std::fma.
contracts::Array sum_of(const FusedOperation& op, const contracts::Array& x, const contracts::Array& residual);

// y of f32 or f64, quantised row by row, in plain loops.
struct Quantised {
  contracts::Array y, scale;
};
Quantised quantised(const contracts::Array& y, std::size_t cols, double given_scale);

// The steps one by one: sum_of(), plain norms on `target`, quantised().
FusedOutcome one_by_one(internal::Target target, const FusedOperation& op, const FusedInputs& inputs);

struct FusedWay {
  std::string name;
  FusedLayout layout{};
  Executor executor{};
};
// All layouts and places that the operation can have; and threads.
std::vector<FusedWay> ways_of(const FusedOperation& op);

// Expects the bits of one_by_one() on every target in `at_once` of the ways, going on through them from call to call.
void expect_fused_is_composed(const FusedOperation& op, const FusedInputs& inputs, std::size_t at_once = 3);
// In one way.
void expect_fused_is_composed(const FusedOperation& op, const FusedInputs& inputs, const FusedWay& way);

}  // namespace evenorm::testing

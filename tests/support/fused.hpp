// Runs a forward pass with all forms that can be fused, over tensors in a chosen memory layout, and computes the same
// results step by step: in scalar code around the plain norm.
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
  bool sum = true;  // if there is a residual
  double given_scale = 0;

  DType arithmetic_of_sum() const;
  std::string name() const;
};

struct FusedInputs {
  contracts::Array x, residual, weight, bias;
};

// Rows of every kind in turn, starting with kind `first`: large means, constants, zeros, subnormal and huge numbers,
// sums that cancel or overflow, NaN and infinity in x or the residual.
inline constexpr std::size_t kRowKindCount = 17;  // kind 0 is normal
FusedInputs fused_inputs(const FusedOperation& op, std::size_t rows, std::size_t first = 0);
FusedInputs normal_inputs(const FusedOperation& op, std::size_t rows);

enum class Place { own, of_x, of_residual };

// Tensors of x's shape start `offset` elements after a cache line, y and the sum one or two elements later. Each row is
// followed by `gap` elements.
struct FusedLayout {
  Place y = Place::own, sum = Place::own;
  std::size_t offset = 0, gap = 0;
  bool odd_addresses = false;
  bool vectors_apart = false;
  bool statistics = true;  // whether mean and rstd are asked for
};

struct FusedOutcome {
  contracts::Array y, sum, scale;  // empty if absent
  std::vector<double> mean, rstd;
  bool kept_inside = true;  // nothing else was written

  std::string difference_to(const FusedOutcome& other) const;  // names what has different bits; empty if nothing has
  FusedOutcome without_statistics() const;
};

// The part of `outcome` that a call with this layout writes.
FusedOutcome asked_for(const FusedOutcome& outcome, const FusedLayout& layout);

FusedOutcome run_fused(const contracts::Runner& run, const FusedOperation& op, const FusedInputs& inputs,
                       const FusedLayout& layout = {}, const Executor& executor = {});

// s = fma(scale, residual, x) with std::fma, rounded to x's type.
contracts::Array sum_of(const FusedOperation& op, const contracts::Array& x, const contracts::Array& residual);

// y of f32 or f64, quantised row by row in plain loops.
struct Quantised {
  contracts::Array y, scale;
};
Quantised quantised(const contracts::Array& y, std::size_t cols, double given_scale);

// The separate steps: sum_of(), plain norms on `target`, quantised().
FusedOutcome one_by_one(internal::Target target, const FusedOperation& op, const FusedInputs& inputs);

struct FusedWay {
  std::string name;
  FusedLayout layout{};
  Executor executor{};
};
// All layouts and places that the operation allows, and numbers of threads.
std::vector<FusedWay> ways_of(const FusedOperation& op);

// Expects the bits of one_by_one() on every target, in `at_once` of the ways. Each call continues with the next ways.
void expect_fused_is_composed(const FusedOperation& op, const FusedInputs& inputs, std::size_t at_once = 3);
void expect_fused_is_composed(const FusedOperation& op, const FusedInputs& inputs, const FusedWay& way);

}  // namespace evenorm::testing

// Implements magnitudes.hpp for the forward pass.
#include <algorithm>
#include <cmath>
#include <optional>

#include "contracts/climb_rows.hpp"
#include "reference/reference.hpp"
#include "support/magnitudes.hpp"
#include "support/processes.hpp"

namespace evenorm::testing {
namespace {

using contracts::Array;
using contracts::on_target;
using reference::Real;

// The rows that are normalised: x, plus the residual if there is one.
Array normed(const FusedMagnitude& pass, const FusedInputs& inputs) {
  return pass.op.residual ? sum_of(pass.op, inputs.x, inputs.residual) : inputs.x;
}

FusedInputs row_alone(const FusedMagnitude& pass, const FusedInputs& all, std::size_t row) {
  const std::size_t cols = pass.op.norm.cols;
  FusedInputs one = all;
  one.x = all.x.part(row * cols, cols);
  if (pass.op.residual) one.residual = all.residual.part(row * cols, cols);
  return one;
}

FusedOutcome row_of(const FusedOutcome& all, std::size_t row, std::size_t cols) {
  const auto part = [&](const Array& values, std::size_t n) {
    return values.empty() ? Array() : values.part(row * n, n);
  };
  FusedOutcome one;
  one.y = part(all.y, cols);
  one.sum = part(all.sum, cols);
  one.scale = part(all.scale, 1);
  if (!all.mean.empty()) one.mean = {all.mean[row]};
  one.rstd = {all.rstd[row]};
  return one;
}

bool is_finite(const Array& row) {
  return std::ranges::all_of(reference::widen(row.dtype(), row.data(), row.size()), [](Real v) { return v - v == 0; });
}

class ForwardTrial {
 public:
  ForwardTrial(const FusedMagnitude& pass, Findings& findings)
      : pass_(pass), op_(pass.op), inputs_(pass.inputs()), what_(pass.name()), findings_(findings) {
    const internal::Target first = contracts::runnable_targets()[0];
    rows_ = normed(pass_, inputs_);
    expected_ = one_by_one(first, op_, inputs_);
  }

  void within_limits() {
    if (op_.norm.y == DType::i8) return;
    const std::size_t cols = op_.norm.cols;
    for (std::size_t r = 0; r < expected_.rstd.size(); ++r) {
      const Array row = rows_.part(r * cols, cols);
      if (!is_finite(row)) continue;
      const double mean = expected_.mean.empty() ? 0 : expected_.mean[r];
      const contracts::Errors errors = contracts::Expected(op_.norm, row, inputs_.weight, inputs_.bias)
                                           .errors_of(expected_.y, r * cols, mean, expected_.rstd[r]);
      findings_.expect(errors.within_limits(op_.norm), what_ + ", row " + std::to_string(r) + ": y " +
                                                           std::to_string(errors.output) + " u, rstd " +
                                                           std::to_string(errors.rstd) + " u, mean " +
                                                           std::to_string(errors.mean) + " of what is allowed");
    }
  }

  void alone(internal::Target target) {
    for (std::size_t r = 0; r < expected_.rstd.size(); ++r) {
      const FusedOutcome one = run_fused(runner(target), op_, row_alone(pass_, inputs_, r));
      expect_equal(one, row_of(expected_, r, op_.norm.cols), "row " + std::to_string(r) + " alone" + on(target));
    }
  }

  void together(internal::Target target) {
    const std::vector<FusedWay> ways = ways_of(op_);
    const FusedWay& way = ways[pass_.seed % ways.size()];
    expect_equal(run_fused(runner(target), op_, inputs_), expected_, "together" + on(target));
    expect_equal(run_fused(runner(target), op_, inputs_, way.layout, way.executor), asked_for(expected_, way.layout),
                 "together, " + way.name + on(target));
  }

 private:
  contracts::Runner runner(internal::Target target) const {
    return pass_.sharded ? sharded_on(target, {static_cast<std::int64_t>(op_.norm.cols)}) : on_target(target);
  }

  void expect_equal(const FusedOutcome& outcome, const FusedOutcome& expected, const std::string& way) {
    const std::string difference = outcome.difference_to(expected);
    findings_.expect(difference.empty() && outcome.kept_inside, what_ + ", " + way + ": " + difference);
  }

  const FusedMagnitude& pass_;
  const FusedOperation& op_;
  FusedInputs inputs_;
  std::string what_;
  Findings& findings_;
  Array rows_;
  FusedOutcome expected_;
};

}  // namespace

FusedInputs FusedMagnitude::inputs() const {
  const std::size_t cols = op.norm.cols;
  FusedInputs inputs{Array(op.norm.x, std::size_t{0}), {}, {}, {}};
  const auto factors = [&](std::optional<DType> type, int exponent, std::uint64_t more) {
    return type ? factors_of_magnitude(*type, cols, exponent, seed + more) : Array();
  };
  inputs.weight = factors(op.norm.weight, gamma, 0);
  inputs.bias = factors(op.norm.bias, beta, 1);
  if (op.residual) inputs.residual = Array(*op.residual, std::size_t{0});
  for (std::size_t r = 0; r < x.size(); ++r) {
    inputs.x.append(row_of_magnitude(op.norm.x, cols, x[r], seed + r));
    if (!op.residual) continue;
    const auto [least, largest] = exponents_of(*op.residual);
    const int of_scale = op.residual_scale == 0 ? 0 : std::ilogb(op.residual_scale);
    const int exponent = std::clamp(x[r] + residual - of_scale, least, largest - 4);
    inputs.residual.append(row_of_magnitude(*op.residual, cols, exponent, seed + r + 100));
  }
  return inputs;
}

std::string FusedMagnitude::name() const {
  const auto two = [](const char* what, int exponent) { return what + std::to_string(exponent); };
  std::string text = op.name() + ", eps " + contracts::hexadecimal(op.norm.eps) + two(", gamma 2^", gamma) +
                     two(", beta 2^", beta) + two(", residual above x by 2^", residual) + ", seed " +
                     std::to_string(seed) + ", rows of x";
  for (const int exponent : x) text += " 2^" + std::to_string(exponent);
  return sharded ? text + ", sharded" : text;
}

void try_forward(const FusedMagnitude& pass, Findings& findings) {
  ForwardTrial trial(pass, findings);
  trial.within_limits();
  for (const internal::Target target : contracts::runnable_targets()) {
    trial.alone(target);
    trial.together(target);
  }
}

}  // namespace evenorm::testing

// See explain_numbers.hpp.
#include "learn/explain/explain_numbers.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "learn/explain/decimal.hpp"

namespace evenorm::cli {
namespace {

using reference::Real;

// The shortest decimal that rounds to `value` in `dtype`.
double decimal_of(DType dtype, const Real& value) {
  const auto wide = static_cast<double>(value);
  if (dtype == DType::f64 || !std::isfinite(wide)) return wide;
  if (dtype == DType::f32) return value_of(fmt::format("{}", static_cast<float>(wide)));
  const std::uint64_t bits = reference::round_to(dtype, value);
  for (int digits = 1; digits < std::numeric_limits<double>::max_digits10; ++digits) {
    const double decimal = value_of(fmt::format("{:.{}e}", wide, digits - 1));
    if (reference::round_to(dtype, static_cast<Real>(decimal)) == bits) return decimal;
  }
  return wide;
}

std::vector<double> run_once(const ExplainInput& input, const contracts::Array& x, bool parameters, OwnResults& out) {
  contracts::Array y(x.dtype(), x.size());
  const Shape shape{static_cast<std::int64_t>(x.size())};
  const auto view = [&](const contracts::Array& a) {
    return a.empty() || !parameters ? ConstTensor{} : ConstTensor{a.data(), a.dtype(), shape, {}};
  };
  const bool has_mean = input.kind == Kind::layer;
  run({.kind = input.kind,
       .x = {x.data(), x.dtype(), shape, {}},
       .y = {y.data(), y.dtype(), shape, {}},
       .normalized_shape = shape,
       .weight = view(input.weight),
       .bias = view(input.bias),
       .mean = has_mean ? Tensor{&out.mean, DType::f64, {}, {}} : Tensor{},
       .rstd = {&out.rstd, DType::f64, {}, {}},
       .eps = input.eps,
       .zero_centered = parameters && !input.weight.empty() && input.zero_centered});
  return widened(y);
}

}  // namespace

std::vector<double> decimals_of(const contracts::Array& values) {
  std::vector<double> result;
  for (const Real v : reals(values)) result.push_back(decimal_of(values.dtype(), v));
  return result;
}

std::vector<double> widened(const contracts::Array& values) { return doubles(reals(values)); }

ExactSteps exact_steps(const RealRow& row) {
  ExactSteps steps;
  Real sum = 0, squares = 0;
  std::vector<Real> deviation, xhat;
  for (const Real v : row.x) {
    sum += v;
    deviation.push_back(v - row.moments.mean);
    squares += deviation.back() * deviation.back();
    xhat.push_back(deviation.back() * row.rstd);
  }
  steps.sum = static_cast<double>(sum);
  steps.mean = static_cast<double>(row.moments.mean);
  steps.squares = static_cast<double>(squares);
  steps.var = static_cast<double>(row.moments.var);
  steps.std = inverse(reference::rstd(row.moments, 0));
  steps.sigma = inverse(row.rstd);
  steps.deviation = doubles(deviation);
  steps.xhat = doubles(xhat);
  steps.y = doubles(row.y());
  steps.mean_square = static_cast<double>(row.moments.var * row.rstd * row.rstd);
  return steps;
}

OwnResults own_results(const ExplainInput& input, const contracts::Array& x) {
  OwnResults own;
  own.xhat = run_once(input, x, false, own);
  own.y = run_once(input, x, true, own);
  return own;
}

HandInput hand_input(const ExplainInput& input, const contracts::Array& x) {
  HandInput hand{input.kind, decimals_of(x), decimals_of(input.weight), decimals_of(input.bias), input.eps};
  hand.gamma.resize(x.size(), input.zero_centered && !input.weight.empty() ? 0 : 1);
  hand.beta.resize(x.size(), 0);
  if (input.zero_centered && !input.weight.empty()) {
    for (double& gamma : hand.gamma) gamma += 1;
  }
  return hand;
}

}  // namespace evenorm::cli

// See gradient_numbers.hpp.
#include "learn/explain/gradient_numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/common/norm.hpp"
#include "learn/explain/decimal.hpp"
#include "learn/explain/explain_numbers.hpp"

namespace evenorm::cli {
namespace {

using reference::Real;

// The sum of dy * y, with x[element] increased by `by`.
Real loss(const ExplainInput& input, const RealGradient& g, std::size_t element, Real by) {
  std::vector<Real> x = g.row.x;
  x[element] += by;
  const reference::Moments moments = reference::moments(input.kind, x);
  const std::vector<Real> y = reference::apply(x, moments, reference::rstd(moments, input.eps), g.row.parameters);
  Real sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += g.dy[i] * y[i];
  return sum;
}

}  // namespace

RealGradient::RealGradient(const ExplainInput& input, const contracts::Array& x, const contracts::Array& dy_values)
    : row(input, x), dy(reals(dy_values)), xhat(reference::apply(row.x, row.moments, row.rstd, {})) {
  sums = reference::gradient_sums(input.kind, xhat, dy, row.parameters);
  dx = reference::dx_of_row(input.kind, row.x, dy, row.moments, row.rstd, row.parameters);
}

ExactGradients exact_gradients(const RealGradient& real) {
  reference::ParameterGradients of_row(real.dx.size());
  of_row.add_row(real.row.x, real.dy, real.row.moments, real.row.rstd);
  ExactGradients exact;
  Real sum_g = 0, sum_g_xhat = 0, along_xhat = 0;
  std::vector<Real> products;
  for (std::size_t i = 0; i < real.dx.size(); ++i) {
    products.push_back(real.sums.g[i] * real.xhat[i]);
    sum_g += real.sums.g[i];
    sum_g_xhat += products[i];
    along_xhat += real.dx[i] * real.xhat[i];
  }
  exact.sigma = inverse(real.row.rstd);
  exact.sum_g = static_cast<double>(sum_g);
  exact.mean_g = static_cast<double>(real.sums.mean_g);
  exact.sum_g_xhat = static_cast<double>(sum_g_xhat);
  exact.mean_g_xhat = static_cast<double>(real.sums.mean_g_xhat);
  exact.along_xhat = static_cast<double>(along_xhat);
  exact.xhat = doubles(real.xhat);
  exact.g = doubles(real.sums.g);
  exact.g_xhat = doubles(products);
  exact.dx = doubles(real.dx);
  exact.dgamma = doubles(of_row.dgamma());
  exact.dbeta = doubles(of_row.dbeta());
  return exact;
}

OwnGradients own_gradients(const ExplainInput& input, const contracts::Array& x, const contracts::Array& dy) {
  const DType weight = input.weight.empty() ? DType::f32 : input.weight.dtype();
  const DType sums = parameter_gradient_dtype({x.dtype(), dy.dtype(), weight});
  contracts::Array dx(x.dtype(), x.size()), dgamma(sums, input.cols), dbeta(sums, input.cols);
  const auto cols = static_cast<std::int64_t>(input.cols);
  const Shape shape{static_cast<std::int64_t>(x.size()) / cols, cols}, row{cols};
  run(Backward{
      .kind = input.kind,
      .x = {x.data(), x.dtype(), shape, {}},
      .dy = {dy.data(), dy.dtype(), shape, {}},
      .normalized_shape = row,
      .weight = input.weight.empty() ? ConstTensor{} : ConstTensor{input.weight.data(), input.weight.dtype(), row, {}},
      .dx = {dx.data(), dx.dtype(), shape, {}},
      .dweight = {dgamma.data(), sums, row, {}},
      .dbias = {dbeta.data(), sums, row, {}},
      .eps = input.eps,
      .zero_centered = input.zero_centered});
  return {widened(dx), widened(dgamma), widened(dbeta)};
}

std::optional<Trial> try_out(const ExplainInput& input, const contracts::Array& x, const RealGradient& real) {
  constexpr double kPart = 1e-4;  // step / sigma: L is nearly linear over it, and ten digits of L show its slope
  const std::vector<double> dx = doubles(real.dx);
  const double sigma = inverse(real.row.rstd);
  const auto finite = [](double v) { return std::isfinite(v); };
  if (!(sigma > 0) || !finite(sigma) || !std::all_of(dx.begin(), dx.end(), finite)) return std::nullopt;
  const auto smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
  Trial trial;
  trial.element = static_cast<std::size_t>(std::max_element(dx.begin(), dx.end(), smaller) - dx.begin());
  // As a decimal if that gives the same digits of L, which the decimals of 16-bit types do not.
  trial.x = (x.dtype() == DType::f32 ? decimals_of(x) : widened(x))[trial.element];
  trial.step = value_of(fmt::format("1e{}", std::lround(std::log10(sigma * kPart))));
  const Real step = trial.step;
  const Real above = loss(input, real, trial.element, step), below = loss(input, real, trial.element, -step);
  trial.above = static_cast<double>(above);
  trial.below = static_cast<double>(below);
  trial.quotient = static_cast<double>((above - below) / (2 * step));
  trial.dx = dx[trial.element];
  if (!finite(trial.above) || !finite(trial.below) || !finite(trial.quotient) || trial.step == 0) return std::nullopt;
  return trial;
}

GradientSums gradient_sums(const ExplainInput& input) {
  reference::ParameterGradients exact(input.cols);
  contracts::Array x, dy;
  for (std::size_t i = 0; i < input.x.size(); ++i) {
    const RealRow row(input, input.x[i]);
    exact.add_row(row.x, reals(input.dy[i]), row.moments, row.rstd);
    if (i == 0) {
      x = input.x[i];
      dy = input.dy[i];
    } else {
      x.append(input.x[i]);
      dy.append(input.dy[i]);
    }
  }
  const OwnGradients own = own_gradients(input, x, dy);
  return {doubles(exact.dgamma()), doubles(exact.dbeta()), own.dgamma, own.dbeta};
}

}  // namespace evenorm::cli

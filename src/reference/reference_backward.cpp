// Implements the reference gradients in binary128 by their formulas.
#include "reference/reference_backward.hpp"

namespace evenorm::reference {
namespace {

// Returns a, or NaN if a is infinite. The result of an infinite gradient would depend on signs that rounding decides.
Real finite_or_nan(Real a) { return a + (a - a); }

}  // namespace

GradientSums gradient_sums(Kind kind, std::span<const Real> xhat, std::span<const Real> dy, const Parameters& p) {
  GradientSums sums{std::vector<Real>(dy.size()), 0, 0};
  for (std::size_t i = 0; i < dy.size(); ++i) {
    sums.g[i] = finite_or_nan(dy[i] * scale_at(p, i));
    if (kind == Kind::layer) sums.mean_g += sums.g[i];
    sums.mean_g_xhat += sums.g[i] * xhat[i];
  }
  const auto cols = static_cast<Real>(dy.size());
  sums.mean_g /= cols;
  sums.mean_g_xhat /= cols;
  return sums;
}

std::vector<Real> dx_of_sums(const GradientSums& sums, std::span<const Real> xhat, Real rstd) {
  std::vector<Real> dx(xhat.size());
  for (std::size_t i = 0; i < xhat.size(); ++i) {
    dx[i] = (sums.g[i] - sums.mean_g - xhat[i] * sums.mean_g_xhat) * rstd;
  }
  return dx;
}

std::vector<Real> dx_of_row(Kind kind, std::span<const Real> x, std::span<const Real> dy, const Moments& m, Real rstd,
                            const Parameters& p) {
  const std::vector<Real> xhat = apply(x, m, rstd, {});
  return dx_of_sums(gradient_sums(kind, xhat, dy, p), xhat, rstd);
}

void ParameterGradients::add_row(std::span<const Real> x, std::span<const Real> dy, const Moments& m, Real rstd) {
  const std::vector<Real> xhat = apply(x, m, rstd, {});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Real d = finite_or_nan(dy[i]);
    dgamma_[i] += d * xhat[i];
    dbeta_[i] += d;
  }
}

}  // namespace evenorm::reference

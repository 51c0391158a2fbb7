// The reference for the backward pass: the gradients of layer norm and RMS norm in binary128, row by row, in plain
// loops. docs/math.md derives the formulas; docs/numerics.md states which results are not finite.
#pragma once

#include <span>
#include <vector>

#include "reference/reference.hpp"

namespace evenorm::reference {

// The terms of the formula for dx. g_i = dy_i scale_i is the gradient of xhat_i.
struct GradientSums {
  std::vector<Real> g;
  Real mean_g;       // mean(g); 0 for RMS norm, which subtracts no mean
  Real mean_g_xhat;  // mean(g xhat)
};
GradientSums gradient_sums(Kind kind, std::span<const Real> xhat, std::span<const Real> dy, const Parameters& p);

// dx_i = (g_i - mean(g) - xhat_i mean(g xhat)) rstd, with the sums of gradient_sums().
std::vector<Real> dx_of_sums(const GradientSums& sums, std::span<const Real> xhat, Real rstd);

// Computes dx from x and its m and rstd. dx is 0 if rstd is 0, and NaN if an element of x, dy or gamma is not finite.
std::vector<Real> dx_of_row(Kind kind, std::span<const Real> x, std::span<const Real> dy, const Moments& m, Real rstd,
                            const Parameters& p);

// The gradients of gamma and beta: sums over rows, 0 for no rows. A row of x that is not finite makes all of dgamma
// NaN. An element of dy that is not finite makes its column of dgamma and dbeta NaN.
class ParameterGradients {
 public:
  explicit ParameterGradients(std::size_t cols) : dgamma_(cols), dbeta_(cols) {}

  // Adds dy_i xhat_i to dgamma_i, and dy_i to dbeta_i.
  void add_row(std::span<const Real> x, std::span<const Real> dy, const Moments& m, Real rstd);

  const std::vector<Real>& dgamma() const { return dgamma_; }
  const std::vector<Real>& dbeta() const { return dbeta_; }

 private:
  std::vector<Real> dgamma_, dbeta_;
};

}  // namespace evenorm::reference

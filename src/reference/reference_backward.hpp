// The specification of the backward pass in binary128: the gradients of layer norm and RMS norm, row by row, in plain
// loops. docs/math.md derives the formulas, docs/numerics.md says what is not finite where.
#pragma once

#include <span>
#include <vector>

#include "reference/reference.hpp"

namespace evenorm::reference {

// What the formula for dx is made of. g_i = dy_i scale_i is the gradient of xhat_i.
struct GradientSums {
  std::vector<Real> g;
  Real mean_g;       // 0 for RMS norm, which takes no mean out
  Real mean_g_xhat;  // mean(g xhat)
};
GradientSums gradient_sums(Kind kind, std::span<const Real> xhat, std::span<const Real> dy, const Parameters& p);

// dx_i = (g_i - mean(g) - xhat_i mean(g xhat)) rstd, of what gradient_sums() gives for the row's xhat.
std::vector<Real> dx_of_sums(const GradientSums& sums, std::span<const Real> xhat, Real rstd);

// The same from x, with m and rstd those of x; 0 where rstd is 0. All NaN where anything in the row's x or dy, or
// in gamma, is not finite.
std::vector<Real> dx_of_row(Kind kind, std::span<const Real> x, std::span<const Real> dy, const Moments& m, Real rstd,
                            const Parameters& p);

// The gradients of gamma (or of what is added to 1 in its place) and beta: sums over rows, 0 for none.
// A row of x that is not finite makes all of dgamma NaN; an element of dy, its column of dgamma and of dbeta.
class ParameterGradients {
 public:
  explicit ParameterGradients(std::size_t cols) : dgamma_(cols), dbeta_(cols) {}

  // dgamma_i takes dy_i xhat_i, dbeta_i takes dy_i.
  void add_row(std::span<const Real> x, std::span<const Real> dy, const Moments& m, Real rstd);

  const std::vector<Real>& dgamma() const { return dgamma_; }
  const std::vector<Real>& dbeta() const { return dbeta_; }

 private:
  std::vector<Real> dgamma_, dbeta_;
};

}  // namespace evenorm::reference

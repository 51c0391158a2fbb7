// The reference that all kernels are tested against: layer norm, RMS norm and their gradients, row by row, in
// binary128, in plain two-pass loops. It shares no code with the kernels, not even the decoding of numbers.
// docs/math.md derives the formulas; docs/numerics.md states which results are not finite.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenorm/evenorm.hpp"

namespace evenorm::reference {

#if LDBL_MANT_DIG == 113
using Real = long double;
#else
using Real = __float128;
#endif

// Converts n stored values, exactly.
std::vector<Real> widen(DType dtype, const void* values, std::size_t n);

// Returns the bits of `value` rounded once, to nearest even. Results may be subnormal or infinite. A zero keeps its
// sign. A NaN becomes the canonical quiet NaN.
std::uint64_t round_to(DType dtype, Real value);

// Sets values[i] to round_to(dtype, value).
void store(DType dtype, void* values, std::size_t i, Real value);

// Layer norm: mean and biased variance. RMS norm: mean is 0, and var is the mean square.
// Both are NaN if the row contains a NaN or an infinity.
struct Moments {
  Real mean;
  Real var;
};
Moments moments(Kind kind, std::span<const Real> x);

// 1 / sqrt(var + eps); 0 if var + eps is 0.
Real rstd(const Moments& m, double eps);

// The largest |xhat| of the row.
Real largest_xhat(std::span<const Real> x, const Moments& m, Real rstd);

// gamma and beta. Empty means absent: gamma is 1, beta is 0. zero_centered: 1 + gamma replaces gamma.
struct Parameters {
  std::span<const Real> gamma{};
  std::span<const Real> beta{};
  bool zero_centered = false;
};

// The factor and the summand of column i.
Real scale_at(const Parameters& p, std::size_t i);
Real shift_at(const Parameters& p, std::size_t i);

// y_i = xhat_i * scale_i + shift_i, not rounded to any storage type.
std::vector<Real> apply(std::span<const Real> x, const Moments& m, Real rstd, const Parameters& p);

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

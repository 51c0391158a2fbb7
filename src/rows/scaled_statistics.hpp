// The statistics of scaled rows: from the moments of an out-of-range row (spec.hpp) to the scalars of its normalise
// step.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "rows/join.hpp"

namespace evenorm::internal {

// 1 / sqrt(var + eps) of one row; lo is used in f64 arithmetic.
template <class A>
EVENORM_BOTH WideNumber rstd_of(const plain::Number<A>& var, double eps) {
  using namespace plain;
  const double r = RstdOf(kOne, var, eps);
  return {r, RstdLowOf(kOne, var, eps, r)};
}
// The same for a row without variance.
template <class A>
EVENORM_BOTH WideNumber rstd_of_constant(double eps) {
  return rstd_of<A>(plain::Number<A>::Zero(plain::kOne), eps);
}

// Whether the gradients of a row of this rstd are computed in wider numbers.
template <class A>
EVENORM_BOTH bool has_wide_rstd(double rstd) {
  constexpr GradientRange kRange = kGradientRange<A>;
  return rstd != 0 && !(rstd >= kRange.least_rstd && rstd <= kRange.largest_rstd);
}

// A row whose mean square is out of range, computed as x * 2^-exponent.
struct ScaledRow {
  int normalise_exponent;  // the exponent of the normalise step
  RowScalars scalars;      // of the row scaled by that exponent
  double mean;             // of the row itself
  WideNumber rstd;         // likewise
  double rstd_lo;          // of scalars.rstd
  bool by_eps;             // rstd is 1 / sqrt(eps): the variance is 0, or far below eps
};

// The least exponent that rows are scaled by: 2^-exponent is in range.
template <class A>
inline constexpr int kLeastExponent = 2 - std::numeric_limits<A>::max_exponent;

// Finishes a finite row that is not all zeros from its moments, computed or given. If rstd would be subnormal, the
// normalise step takes an rstd 2^16 times larger, and x smaller. Otherwise lost digits of rstd would show in y, because
// x is up to 4 in magnitude.
template <class A>
EVENORM_BOTH ScaledRow finish_scaled(const Moments& moments, double eps) {
  using namespace plain;
  const int least = kLeastExponent<A>, exponent = std::max(exponent_of(moments), least);
  const MomentNode scaled = node_of<A>(rescaled(moments, exponent));
  const auto var = MeanOf(kOne, Number<A>::From(kOne, scaled.m2_hi, scaled.m2_lo), scaled.count);
  const double scaled_eps = std::ldexp(eps, -2 * exponent);
  const bool eps_alone = scaled_eps > std::numeric_limits<double>::max();  // var is smaller by hundreds of digits
  const WideNumber scaled_rstd = eps_alone ? WideNumber{0, 0} : rstd_of<A>(var, scaled_eps);
  ScaledRow row{};
  row.by_eps = var.hi == 0 || eps_alone;
  row.rstd = row.by_eps ? rstd_of_constant<A>(eps)
                        : WideNumber{std::ldexp(scaled_rstd.hi, -exponent), std::ldexp(scaled_rstd.lo, -exponent)};
  row.mean = std::ldexp(scaled.mean_hi, exponent);
  const int shift = std::ldexp(row.rstd.hi, exponent) < static_cast<double>(std::numeric_limits<A>::min()) ? 16 : 0;
  row.normalise_exponent = exponent + shift;
  row.scalars.rstd = eps_alone ? std::ldexp(row.rstd.hi, row.normalise_exponent) : std::ldexp(scaled_rstd.hi, shift);
  row.rstd_lo = eps_alone ? std::ldexp(row.rstd.lo, row.normalise_exponent) : std::ldexp(scaled_rstd.lo, shift);
  row.scalars.mean_hi = std::ldexp(scaled.mean_hi, -shift);
  row.scalars.mean_lo = std::ldexp(scaled.mean_lo, -shift);
  row.scalars.near_zero = IsNearZero(kOne, scaled.mean_hi, var.hi);
  return row;
}

}  // namespace evenorm::internal

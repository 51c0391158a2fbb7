// Products of double-doubles whose exponents are kept apart.
#include "rows/scaled_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace evenorm::internal {

using namespace plain;

namespace {

// The exponent that takes a largest magnitude to about 1; 0 for what is 0 or not finite.
int scale_exponent(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 0;
  return std::ilogb(largest);
}

void accumulate(double* sum, std::size_t low, double hi, double lo) {
  ScaledGradient::W total{sum[0], sum[low]};
  AccumulateSum(kOne, total, hi);
  sum[0] = total.hi;
  sum[low] = total.lo + lo;
}

}  // namespace

void ScaledGradient::find_exponents(const double* x, const double* dy, const double* gamma, std::size_t n, int* g,
                                    int* gd) const {
  for (std::size_t i = 0; i < n; ++i) {
    const Term of_xhat = g_term(load_one(dy + i), load_one(gamma + i));
    *g = std::max(*g, of_xhat.exponent);
    *gd = std::max(*gd, product(of_xhat, centred_term(load_one(x + i))).exponent);
  }
}

void ScaledGradient::sum(const double* x, const double* dy, const double* gamma, std::size_t n, W* g, W* gd) const {
  for (std::size_t i = 0; i < n; ++i) {
    const Term of_xhat = g_term(load_one(dy + i), load_one(gamma + i));
    *g = Add(kOne, *g, of_xhat.below(s_.c1_exponent));
    *gd = Add(kOne, *gd, product(of_xhat, centred_term(load_one(x + i))).below(s_.c2_exponent));
  }
}

void ScaledGradient::add_to_columns(const double* x, const double* dy, std::size_t n, const ColumnPlaces& to) const {
  const Term rstd = rstd_term();
  for (std::size_t i = 0; i < n; ++i) {
    int of_dy = 0;
    const double significand = std::frexp(load_one(dy + i), &of_dy);
    const Term t = centred_term(load_one(x + i));
    const W term = Times(kOne, Multiply(kOne, t.value, rstd.value), significand);
    const int exponent = t.exponent + rstd.exponent + of_dy;
    accumulate(to.dgamma + i, to.low, std::ldexp(term.hi, exponent), std::ldexp(term.lo, exponent));
    accumulate(to.dbeta + i, to.low, load_one(dy + i), 0);
  }
}

void ScaledGradient::map(bool zero, const double* x, const double* dy, const double* gamma, std::size_t n,
                         double* dx) const {
  const bool finite = std::isfinite(s_.c1_hi) && std::isfinite(s_.c2_hi);
  const Term c1 = normalised({s_.c1_hi, s_.c1_lo}, s_.c1_exponent);
  const Term c2 = normalised({s_.c2_hi, s_.c2_lo}, s_.c2_exponent);
  const Term rstd = rstd_term();
  for (std::size_t i = 0; i < n; ++i) {
    const Term g = g_term(load_one(dy + i), load_one(gamma + i)), t = centred_term(load_one(x + i));
    const Term along = normalised(Multiply(kOne, Multiply(kOne, t.value, rstd.value), c2.value),
                                  t.exponent + rstd.exponent + c2.exponent);
    const int largest = std::max({g.exponent, c1.exponent, along.exponent});
    const W means = Add(kOne, c1.below(largest), along.below(largest));
    const W rest = Multiply(kOne, Add(kOne, g.below(largest), Negate(kOne, means)), rstd.value);
    const double value = std::ldexp(rest.hi, largest + rstd.exponent);
    const bool number = finite && value == value;
    store_one(!number ? std::numeric_limits<double>::quiet_NaN() : zero ? 0 : value, dx + i);
  }
}

ScaledGradient::W ScaledGradient::shifted(const W& w, int by) { return {std::ldexp(w.hi, by), std::ldexp(w.lo, by)}; }

ScaledGradient::Term ScaledGradient::normalised(const W& w, int exponent) {
  if (w.hi == 0) return {w, kExponentOfZero};
  const int own = scale_exponent(std::fabs(w.hi));
  return {shifted(w, -own), exponent + own};
}

// Of 0, too, since it is never compared.
ScaledGradient::Term ScaledGradient::rstd_term() const {
  int exponent = 0;
  const double hi = std::frexp(s_.rstd, &exponent);
  return {{hi, std::ldexp(s_.rstd_lo, -exponent)}, exponent + s_.rstd_exponent};
}

ScaledGradient::Term ScaledGradient::g_term(double dy, double gamma) {
  int of_dy = 0, of_gamma = 0;
  const double dy_part = std::frexp(dy, &of_dy), gamma_part = std::frexp(gamma, &of_gamma);
  return normalised(TwoProduct(kOne, dy_part, gamma_part), of_dy + of_gamma);
}

ScaledGradient::Term ScaledGradient::product(const Term& a, const Term& b) {
  return normalised(Multiply(kOne, a.value, b.value), a.exponent + b.exponent);
}

// x - mean, of x itself; without a mean x is not scaled, which loses digits beside a huge one.
ScaledGradient::Term ScaledGradient::centred_term(double x) const {
  if (s_.mean_hi == 0 && s_.mean_lo == 0) return normalised({x, 0}, 0);
  return normalised(Difference(kOne, std::ldexp(x, -s_.x_exponent), W{s_.mean_hi, s_.mean_lo}), s_.x_exponent);
}

}  // namespace evenorm::internal

// The formula of the gradients, written out in wider numbers.
#include "rows/wide_gradient.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "rows/wide.hpp"

namespace evenorm::internal {
namespace {

constexpr int kFraction128 = 112, kBias128 = 16383;
using Bits128 = unsigned __int128;

Binary128 power_of_two(int exponent) {
  return std::bit_cast<Binary128>(static_cast<Bits128>(exponent + kBias128) << kFraction128);
}

// Of a normal number.
int exponent_of(Binary128 value) {
  const auto bits = std::bit_cast<Bits128>(value) >> kFraction128;
  return static_cast<int>(bits & 0x7FFFU) - kBias128;
}

// A number as (hi + lo) 2^exponent.
struct Parts {
  double hi, lo;
  int exponent;
};
Parts parts_of(double value) { return {value, 0, 0}; }
Parts parts_of(Binary128 value) {
  const auto nearest = static_cast<double>(value);
  if (value == 0 || value - value != 0) return {nearest, 0, 0};
  const int exponent = exponent_of(value);
  const Binary128 significand = value * power_of_two(-exponent);
  const auto hi = static_cast<double>(significand);
  return {hi, static_cast<double>(significand - static_cast<Binary128>(hi)), exponent};
}
template <class W>
W whole(double hi, double lo, int exponent) {
  if constexpr (std::is_same_v<W, double>) {
    return hi;
  } else {
    return (static_cast<W>(hi) + static_cast<W>(lo)) * power_of_two(exponent);
  }
}

// An f64 added to a wide sum, and what f64 does not hold of it.
template <class A>
void accumulate(double* sum, std::size_t low, double hi, double lo) {
  using namespace plain;
  auto total = Number<A>::From(kOne, sum[0], sum[low]);
  AccumulateSum(kOne, total, hi);
  sum[0] = total.hi;
  const double rest = total.Low(kOne) + lo;
  if (low != 0) sum[low] = std::isnan(rest) ? 0 : rest;  // TwoSum may leave the range on its way to a sum that does not
}

}  // namespace

template <class A>
WideGradient<A>::WideGradient(const GradientScalars& s)
    : mean_(whole<W>(s.mean_hi, s.mean_lo, s.x_exponent)),
      centre_(whole<W>(static_cast<double>(static_cast<A>(s.mean_hi)), 0, s.x_exponent)),
      rstd_(whole<W>(s.rstd, s.rstd_lo, s.rstd_exponent)),
      c1_(whole<W>(s.c1_hi, s.c1_lo, s.c1_exponent)),
      c2_(whole<W>(s.c2_hi, s.c2_lo, s.c2_exponent)),
      finite_(std::isfinite(s.c1_hi) && std::isfinite(s.c2_hi)) {}

template <class A>
void WideGradient<A>::add(const A* x, const A* dy, const A* gamma, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const A dy_i = load_one(dy + i), gamma_i = load_one(gamma + i), x_i = load_one(x + i);
    if (dy_i == 0 && std::isfinite(gamma_i) && std::isfinite(x_i)) continue;  // common, and slow in binary128
    const W g = static_cast<W>(dy_i) * static_cast<W>(gamma_i);
    g_ += g;
    gd_ += g * (centre_ - static_cast<W>(x_i));
  }
}

template <class A>
GradientSums WideGradient<A>::sums() const {
  const Parts g = parts_of(g_), gd = parts_of(gd_);
  return {{g.hi, g.lo, gd.hi, gd.lo}, g.exponent, gd.exponent};
}

template <class A>
void WideGradient<A>::finish(bool centred, std::size_t n, const GradientSums& sums, GradientScalars* s) const {
  const W g = whole<W>(sums.sums.g_hi, sums.sums.g_lo, sums.g_exponent);
  const W gd = whole<W>(sums.sums.gd_hi, sums.sums.gd_lo, sums.gd_exponent);
  const auto count = static_cast<W>(n);
  const Parts c1 = parts_of(centred ? g / count : W{0});
  const Parts c2 = parts_of(-(gd + (mean_ - centre_) * g) / count * rstd_);
  s->c1_hi = c1.hi, s->c1_lo = c1.lo, s->c1_exponent = c1.exponent;
  s->c2_hi = c2.hi, s->c2_lo = c2.lo, s->c2_exponent = c2.exponent;
}

template <class A>
void WideGradient<A>::add_to_columns(const A* x, const A* dy, std::size_t n, const GradientColumns<A>& to,
                                     bool all) const {
  for (std::size_t i = 0; i < n; ++i) {
    const A dy_i = load_one(dy + i);
    if (all || to.dgamma_chain[i] != 0) {
      const W term = static_cast<W>(dy_i) * ((static_cast<W>(load_one(x + i)) - mean_) * rstd_);
      const auto hi = static_cast<double>(term);
      accumulate<A>(to.sums.dgamma + i, to.sums.low, hi, static_cast<double>(term - static_cast<W>(hi)));
    }
    if (all || to.dbeta_chain[i] != 0) accumulate<A>(to.sums.dbeta + i, to.sums.low, static_cast<double>(dy_i), 0);
  }
}

template <class A>
void WideGradient<A>::write_dx(const A* x, const A* dy, const A* gamma, std::size_t n, A* dx, bool all) const {
  for (std::size_t i = 0; i < n; ++i) {
    if (!all && std::isfinite(load_one(dx + i))) continue;
    const W g = static_cast<W>(load_one(dy + i)) * static_cast<W>(load_one(gamma + i));
    const W xhat = (static_cast<W>(load_one(x + i)) - mean_) * rstd_;
    const W value = ((g - c1_) - xhat * c2_) * rstd_ + W{0};  // not -0
    const bool number = finite_ && value == value;
    store_one(number ? static_cast<A>(value) : std::numeric_limits<A>::quiet_NaN(), dx + i);
  }
}

template <class A>
void end_chains(const GradientColumns<A>& columns, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    accumulate<A>(columns.sums.dgamma + i, columns.sums.low, static_cast<double>(columns.dgamma_chain[i]), 0);
    accumulate<A>(columns.sums.dbeta + i, columns.sums.low, static_cast<double>(columns.dbeta_chain[i]), 0);
  }
}

template class WideGradient<double>;
template class WideGradient<float>;
template void end_chains<double>(const GradientColumns<double>&, std::size_t);
template void end_chains<float>(const GradientColumns<float>&, std::size_t);

}  // namespace evenorm::internal

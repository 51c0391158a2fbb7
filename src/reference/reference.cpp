// Implements the reference in binary128: decoding, two passes over the row, gradients, rounding to the storage types.
#include "reference/reference.hpp"

#include <bit>
#include <cstring>

#if LDBL_MANT_DIG == 113
#include <cmath>
#else
#include <quadmath.h>
#endif

namespace evenorm::reference {
namespace {

using Bits128 = unsigned __int128;

constexpr int kRealFraction = 112;
constexpr int kRealBias = 16383;

Real square_root(Real a) {
#if LDBL_MANT_DIG == 113
  return std::sqrt(a);
#else
  return sqrtq(a);
#endif
}

bool is_finite(Real a) { return a - a == 0; }
// Returns a, or NaN if a is infinite. The result of an infinite gradient would depend on signs that rounding decides.
Real finite_or_nan(Real a) { return a + (a - a); }

// An IEEE binary format of `fraction` and `exponent` bits.
struct Format {
  int fraction;
  int exponent;

  int bias() const { return (1 << (exponent - 1)) - 1; }
  std::size_t bytes() const { return static_cast<std::size_t>(1 + exponent + fraction) / 8; }
  std::uint64_t sign() const { return std::uint64_t{1} << (fraction + exponent); }
  std::uint64_t infinity() const { return ((std::uint64_t{1} << exponent) - 1) << fraction; }
  std::uint64_t quiet_nan() const { return infinity() | (std::uint64_t{1} << (fraction - 1)); }
};

Format format_of(DType dtype) {
  constexpr Format kFormats[] = {{52, 11}, {23, 8}, {7, 8}, {10, 5}};  // in the order of DType
  return kFormats[static_cast<std::size_t>(dtype)];
}

// (-1)^sign * 2^exponent, for exponents of normal numbers.
Real power_of_two(bool sign, int exponent) {
  const Bits128 bits = (Bits128{sign} << 127) | (static_cast<Bits128>(exponent + kRealBias) << kRealFraction);
  return std::bit_cast<Real>(bits);
}

Real decode(const Format& f, std::uint64_t bits) {
  const bool sign = (bits & f.sign()) != 0;
  const auto exponent = static_cast<int>((bits & f.infinity()) >> f.fraction);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << f.fraction) - 1);
  if ((bits & f.infinity()) == f.infinity()) {
    const Real infinity = power_of_two(sign, kRealBias + 1);
    return fraction == 0 ? infinity : infinity - infinity;
  }
  const std::uint64_t leading = exponent == 0 ? 0 : std::uint64_t{1} << f.fraction;
  const int last_place = (exponent == 0 ? 1 : exponent) - f.bias() - f.fraction;
  return static_cast<Real>(leading | fraction) * power_of_two(sign, last_place);
}

}  // namespace

std::vector<Real> widen(DType dtype, const void* values, std::size_t n) {
  const Format f = format_of(dtype);
  std::vector<Real> wide(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(values) + i * f.bytes(), f.bytes());  // little-endian
    wide[i] = decode(f, bits);
  }
  return wide;
}

std::uint64_t round_to(DType dtype, Real value) {
  const Format f = format_of(dtype);
  if (value != value) return f.quiet_nan();
  const auto bits = std::bit_cast<Bits128>(value);
  const std::uint64_t sign = (bits >> 127) != 0 ? f.sign() : 0;
  const auto biased = static_cast<int>((bits >> kRealFraction) & 0x7FFF);
  if (biased == 0) return sign;  // zero, or far below the smallest number of every storage type
  const int exponent = biased - kRealBias;
  if (exponent > f.bias()) return sign | f.infinity();

  // value = significand * 2^(exponent - 112), which is rounded at the format's last place there.
  const Bits128 significand = (Bits128{1} << kRealFraction) | (bits & ((Bits128{1} << kRealFraction) - 1));
  const int smallest = 1 - f.bias();  // exponent of the smallest normal number
  const int dropped = kRealFraction - f.fraction + (exponent < smallest ? smallest - exponent : 0);
  if (dropped > kRealFraction + 1) return sign;
  const Bits128 half = Bits128{1} << (dropped - 1);
  const Bits128 rest = significand & (2 * half - 1);
  auto kept = static_cast<std::uint64_t>(significand >> dropped);
  if (rest > half || (rest == half && kept % 2 == 1)) ++kept;
  // A carry out of the fraction increments the exponent, possibly to infinity.
  const std::uint64_t steps = exponent < smallest ? 0 : static_cast<std::uint64_t>(exponent - smallest);
  return sign | ((steps << f.fraction) + kept);
}

void store(DType dtype, void* values, std::size_t i, Real value) {
  const std::uint64_t bits = round_to(dtype, value);
  const std::size_t bytes = format_of(dtype).bytes();
  std::memcpy(static_cast<char*>(values) + i * bytes, &bits, bytes);
}

Moments moments(Kind kind, std::span<const Real> x) {
  const auto cols = static_cast<Real>(x.size());
  Real mean = 0;
  if (kind == Kind::layer) {
    for (const Real v : x) mean += v;
    mean /= cols;
  }
  Real var = 0;
  for (const Real v : x) var += (v - mean) * (v - mean);
  var /= cols;
  if (!is_finite(var)) return {var - var, var - var};
  return {mean, var};
}

Real rstd(const Moments& m, double eps) {
  const Real shifted = m.var + static_cast<Real>(eps);
  return shifted == 0 ? Real{0} : 1 / square_root(shifted);
}

Real largest_xhat(std::span<const Real> x, const Moments& m, Real rstd) {
  Real largest = 0;
  for (const Real v : x) {
    const Real difference = v < m.mean ? m.mean - v : v - m.mean;
    if (difference > largest) largest = difference;
  }
  return largest * rstd;
}

Real scale_at(const Parameters& p, std::size_t i) {
  if (p.gamma.empty()) return 1;
  return p.zero_centered ? 1 + p.gamma[i] : p.gamma[i];
}
Real shift_at(const Parameters& p, std::size_t i) { return p.beta.empty() ? Real{0} : p.beta[i]; }

std::vector<Real> apply(std::span<const Real> x, const Moments& m, Real rstd, const Parameters& p) {
  std::vector<Real> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Real xhat = (x[i] - m.mean) * rstd;
    y[i] = xhat * scale_at(p, i) + shift_at(p, i);
  }
  return y;
}

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

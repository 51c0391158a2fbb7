// The specification: layer norm and RMS norm of one row in binary128, in plain two-pass loops.
// Shares no code with the kernels, not even the decoding of numbers. Everything is tested against it.
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

// n stored values, exactly.
std::vector<Real> widen(DType dtype, const void* values, std::size_t n);

// The bits of `value` rounded once to nearest even, subnormals and overflow to infinity included; the sign of zero is
// kept, a NaN is the canonical quiet one.
std::uint64_t round_to(DType dtype, Real value);

// values[i] = value, rounded by round_to.
void store(DType dtype, void* values, std::size_t i, Real value);

// Layer norm: mean and biased variance. RMS norm: mean is 0 and var the mean square.
// A row with a NaN or an infinity has neither: both are NaN.
struct Moments {
  Real mean;
  Real var;
};
Moments moments(Kind kind, std::span<const Real> x);

// 1 / sqrt(var + eps); 0 where var + eps is 0.
Real rstd(const Moments& m, double eps);

// The largest |xhat| of the row.
Real largest_xhat(std::span<const Real> x, const Moments& m, Real rstd);

// One row's parameters; empty means absent: gamma 1, beta 0. Zero-centred: 1 + gamma takes gamma's place.
struct Parameters {
  std::span<const Real> gamma{};
  std::span<const Real> beta{};
  bool zero_centered = false;
};

// The factor of column i, and what is added there.
Real scale_at(const Parameters& p, std::size_t i);
Real shift_at(const Parameters& p, std::size_t i);

// y_i = xhat_i * scale_i + shift_i, not rounded to any storage type.
std::vector<Real> apply(std::span<const Real> x, const Moments& m, Real rstd, const Parameters& p);

}  // namespace evenorm::reference

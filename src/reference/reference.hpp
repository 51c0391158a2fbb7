// The reference that all kernels are tested against: layer norm and RMS norm of one row in binary128, in plain two-pass
// loops. It shares no code with the kernels, not even the decoding of numbers.
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

}  // namespace evenorm::reference

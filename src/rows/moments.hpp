// Moments with exponents, and how they are brought to one scale. All steps except those on exponents are exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "evenorm/sharded.hpp"
#include "rows/plain_simd.hpp"

namespace evenorm::internal {

EVENORM_BOTH inline bool is_finite(const Moments& m) { return std::isfinite(m.mean_hi) && std::isfinite(m.m2_hi); }
EVENORM_BOTH inline bool is_zero(const Moments& m) { return m.mean_hi == 0 && m.m2_hi == 0; }

// Limits an exponent from the caller to more than the range of any type.
EVENORM_BOTH inline std::int64_t within_range(std::int64_t exponent) {
  return std::clamp<std::int64_t>(exponent, -5000, 5000);
}

// The exponent that scales an out-of-range row: that of the largest |x|. Moments of such a row have it, unless another
// process made them up.
EVENORM_BOTH inline int exponent_of(const Moments& m) {
  if (m.largest > 0 && std::isfinite(m.largest)) return std::ilogb(m.largest);
  return static_cast<int>(within_range(m.exponent));
}

// Returns m with another exponent.
EVENORM_BOTH inline Moments rescaled(const Moments& m, int exponent) {
  const auto shift = static_cast<int>(within_range(m.exponent) - exponent);
  if (shift == 0) return m;
  return {m.count,
          std::ldexp(m.mean_hi, shift),
          std::ldexp(m.mean_lo, shift),
          std::ldexp(m.m2_hi, 2 * shift),
          std::ldexp(m.m2_lo, 2 * shift),
          exponent,
          m.largest};
}

// The exponent at which both are joined: the larger one of those that are not zero.
inline int common_exponent(const Moments& a, const Moments& b) {
  const std::int64_t exponent = is_zero(a)   ? (is_zero(b) ? 0 : b.exponent)
                                : is_zero(b) ? a.exponent
                                             : std::max(a.exponent, b.exponent);
  return static_cast<int>(within_range(exponent));
}

}  // namespace evenorm::internal

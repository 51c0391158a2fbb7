// Moments as numbers of any scale: what they are worth and how they are brought to one scale. Plain C++, the same on
// every target: all steps but the exponent's are exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "evenorm/evenorm.hpp"

namespace evenorm::internal {

inline bool is_finite(const Moments& m) { return std::isfinite(m.mean_hi) && std::isfinite(m.m2_hi); }
inline bool is_zero(const Moments& m) { return m.mean_hi == 0 && m.m2_hi == 0; }

// That of the root of the mean square, beside m.exponent; m is finite and not zero.
inline int exponent_of(const Moments& m) {
  const double largest = std::max(std::fabs(m.mean_hi), std::sqrt(m.m2_hi / m.count));
  return largest > 0 && std::isfinite(largest) ? std::ilogb(largest) : 0;
}

// m with another exponent.
inline Moments rescaled(const Moments& m, int exponent) {
  const auto shift = static_cast<int>(std::clamp<std::int64_t>(m.exponent - exponent, -5000, 5000));
  return {m.count,
          std::ldexp(m.mean_hi, shift),
          std::ldexp(m.mean_lo, shift),
          std::ldexp(m.m2_hi, 2 * shift),
          std::ldexp(m.m2_lo, 2 * shift),
          exponent};
}

// The exponent that all parts can have: the largest of those that are not zero.
inline int common_exponent(const Moments* parts, std::size_t count) {
  bool any = false;
  std::int64_t exponent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_zero(parts[i])) continue;
    exponent = any ? std::max(exponent, parts[i].exponent) : parts[i].exponent;
    any = true;
  }
  return static_cast<int>(std::clamp<std::int64_t>(exponent, -5000, 5000));
}

}  // namespace evenorm::internal

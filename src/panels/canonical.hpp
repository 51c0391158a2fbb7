// Canonical NaNs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.hpp"

namespace evenorm::internal {

// Replaces NaNs by the canonical one, because payloads and signs differ between targets. This is rarely needed, so the
// loop is plain.
template <class T>
[[gnu::noinline]] void canonicalise_nans(T* y, std::size_t n) {
  using Bits = BitsOf<T>;
  // Those of infinity, above which magnitudes are NaNs, and the bit that a canonical NaN has besides.
  constexpr std::uint64_t kInfinity = sizeof(T) == 8                ? 0x7FF0000000000000
                                      : sizeof(T) == 4              ? 0x7F800000
                                      : std::is_same_v<T, bfloat16> ? 0x7F80
                                                                    : 0x7C00;
  constexpr auto kFirst = static_cast<Bits>((kInfinity & ~(kInfinity << 1U)) >> 1U);
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = load_one(reinterpret_cast<const Bits*>(y + i));
    if ((bits & static_cast<Bits>(~Bits{0}) >> 1U) > kInfinity) store_one(static_cast<Bits>(kInfinity | kFirst), y + i);
  }
}

}  // namespace evenorm::internal

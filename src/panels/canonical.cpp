// This is rarely needed, so loops are plain.
#include <bit>
#include <cstdint>

#include "kernels/kernels.hpp"
#include "panels/canonical.hpp"

namespace evenorm::internal {
namespace {

// T as an integer: the bits of infinity, above which magnitudes are NaNs, and of the canonical NaN.
template <class Bits>
void replace_nans(Bits infinity, Bits canonical, Bits* y, std::size_t n) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1U;
  for (std::size_t i = 0; i < n; ++i) {
    if ((load_one(y + i) & kMagnitude) > infinity) store_one(canonical, y + i);
  }
}

}  // namespace

template <>
void canonicalise_nans(double* y, std::size_t n) {
  replace_nans<std::uint64_t>(0x7FF0000000000000, 0x7FF8000000000000, reinterpret_cast<std::uint64_t*>(y), n);
}
template <>
void canonicalise_nans(float* y, std::size_t n) {
  replace_nans<std::uint32_t>(0x7F800000, 0x7FC00000, reinterpret_cast<std::uint32_t*>(y), n);
}
template <>
void canonicalise_nans(bfloat16* y, std::size_t n) {
  replace_nans<std::uint16_t>(0x7F80, 0x7FC0, reinterpret_cast<std::uint16_t*>(y), n);
}
template <>
void canonicalise_nans(float16* y, std::size_t n) {
  replace_nans<std::uint16_t>(0x7C00, 0x7E00, reinterpret_cast<std::uint16_t*>(y), n);
}

}  // namespace evenorm::internal

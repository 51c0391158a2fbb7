// Conversions of n contiguous elements between a storage type and the type of the arithmetic. Widening is exact.
// Narrowing rounds once to nearest even, also from f64 to 16-bit types. Included once per target.
#pragma once

#include <bit>
#include <cstring>

#include "kernels/kernels.hpp"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Rounds f64 to f32, to odd. A second rounding, to 11 bits or fewer, then gives the result of a single one.
HWY_INLINE float RoundToOdd(double x) {
  const float nearest = static_cast<float>(x);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  const double back = static_cast<double>(nearest);
  if (back == x || x != x || bits % 2 == 1) return nearest;
  return std::bit_cast<float>(std::fabs(back) < std::fabs(x) ? bits + 1 : bits - 1);
}

template <class From, class To>
HWY_INLINE void ConvertVector(const From* from, To* to) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    const DF32 df;
    HWY_ALIGN float odd[hn::MaxLanes(df)];
    for (size_t i = 0; i < hn::Lanes(df); ++i) odd[i] = RoundToOdd(from[i]);
    StoreArithmetic(hn::Load(df, odd), df, to);
  } else if constexpr (std::is_same_v<From, double> || std::is_same_v<To, double>) {
    const DF64 d;
    const hn::Rebind<float, DF64> df;
    for (size_t i = 0; i < hn::MaxLanes(DF32()); i += hn::Lanes(d)) {
      if constexpr (std::is_same_v<To, float>) {
        StoreArithmetic(NarrowToF32(df, hn::LoadU(d, from + i)), df, to + i);
      } else {
        hn::StoreU(LoadF64(d, from + i), d, to + i);
      }
    }
  } else {
    const DF32 df;
    StoreArithmetic(LoadArithmetic(df, from), df, to);
  }
}

template <class From, class To>
void ConvertElements(const void* from_bytes, void* to_bytes, size_t n) {
  const auto* from = static_cast<const From*>(from_bytes);
  auto* to = static_cast<To*>(to_bytes);
  constexpr size_t kN = hn::MaxLanes(DF32());
  size_t i = 0;
  for (; i + kN <= n; i += kN) ConvertVector(from + i, to + i);
  if (i == n) return;
  if constexpr (!std::is_same_v<From, double> && !std::is_same_v<To, double>) {
    return StoreFirst(LoadFirst(DF32(), from + i, n - i), DF32(), to + i, n - i);
  }
  From from_tail[kN] = {};
  To to_tail[kN];
  std::memcpy(static_cast<void*>(from_tail), from + i, (n - i) * sizeof(From));
  ConvertVector(from_tail, to_tail);
  std::memcpy(static_cast<void*>(to + i), to_tail, (n - i) * sizeof(To));
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

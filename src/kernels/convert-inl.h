// Block conversions between a storage type and the type of the arithmetic: n elements, contiguous.
// Widening is exact; narrowing rounds once, to nearest even, from f64 to the 16-bit types too.
// Included once per target.
#if defined(EVENORM_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_CONVERT_INL_H_
#undef EVENORM_KERNELS_CONVERT_INL_H_
#else
#define EVENORM_KERNELS_CONVERT_INL_H_
#endif

#include <bit>
#include <cstring>

#include "kernels/row_functions.hpp"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// f64 to f32 rounded to odd: a second rounding, to 11 bits or fewer, then gives what a single one would.
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
    StoreF32(hn::Load(df, odd), df, to);
  } else if constexpr (std::is_same_v<From, double> || std::is_same_v<To, double>) {
    const DF64 d;
    const hn::Rebind<float, DF64> df;
    for (size_t i = 0; i < hn::MaxLanes(DF32()); i += hn::Lanes(d)) {
      if constexpr (std::is_same_v<To, float>) {
        StoreF32(NarrowToF32(df, hn::LoadU(d, from + i)), df, to + i);
      } else {
        hn::StoreU(LoadF64(d, from + i), d, to + i);
      }
    }
  } else {
    const DF32 df;
    StoreF32(LoadF32(df, from), df, to);
  }
}

template <class From, class To>
HWY_ATTR void Convert(const void* from_bytes, void* to_bytes, size_t n) noexcept {
  const auto* from = static_cast<const From*>(from_bytes);
  auto* to = static_cast<To*>(to_bytes);
  constexpr size_t kN = hn::MaxLanes(DF32());
  size_t i = 0;
  for (; i + kN <= n; i += kN) ConvertVector(from + i, to + i);
  if (i == n) return;
  From from_tail[kN] = {};
  To to_tail[kN];
  std::memcpy(from_tail, from + i, (n - i) * sizeof(From));
  ConvertVector(from_tail, to_tail);
  std::memcpy(to + i, to_tail, (n - i) * sizeof(To));
}

// n elements of a storage type to those of its arithmetic, and back, rounded once.
template <class T>
HWY_INLINE void Widen(const T* from, Arithmetic<T>* to, size_t n) {
  if constexpr (std::is_same_v<T, Arithmetic<T>>) {
    std::memcpy(to, from, n * sizeof(T));
  } else {
    Convert<T, Arithmetic<T>>(from, to, n);
  }
}
template <class T>
HWY_INLINE void Narrow(const Arithmetic<T>* from, T* to, size_t n) {
  if constexpr (std::is_same_v<T, Arithmetic<T>>) {
    std::memcpy(static_cast<void*>(to), from, n * sizeof(T));
  } else {
    Convert<Arithmetic<T>, T>(from, to, n);
  }
}

template <class T>
ConvertFunction* ConverterTo(DType from) {
  switch (from) {
    case DType::f64:
      return std::is_same_v<T, double> ? &Convert<double, double> : nullptr;
    case DType::f32:
      return &Convert<float, T>;
    case DType::bf16:
      return &Convert<bfloat16, T>;
    default:
      return &Convert<float16, T>;
  }
}
template <class T>
ConvertFunction* ConverterFrom(DType to) {
  switch (to) {
    case DType::f64:
      return std::is_same_v<T, double> ? &Convert<double, double> : nullptr;
    case DType::f32:
      return &Convert<T, float>;
    case DType::bf16:
      return &Convert<T, bfloat16>;
    default:
      return &Convert<T, float16>;
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard

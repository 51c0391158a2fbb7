// The map of the forward pass: y = fma(((x - mean_hi) - mean_lo) * rstd, gamma, beta), for one block of columns.
// Included once per target.
#if defined(EVENORM_KERNELS_APPLY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_APPLY_INL_H_
#undef EVENORM_KERNELS_APPLY_INL_H_
#else
#define EVENORM_KERNELS_APPLY_INL_H_
#endif

#include <cstring>
#include <limits>

#include "kernels/statistics-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class D, class V = hn::Vec<D>>
struct MapVectors {
  V mean_hi, mean_lo, rstd;

  template <class A>
  HWY_INLINE MapVectors(D d, const MapScalars<A>& s)
      : mean_hi(hn::Set(d, s.mean_hi)), mean_lo(hn::Set(d, s.mean_lo)), rstd(hn::Set(d, s.rstd)) {}

  HWY_INLINE V operator()(D d, V x, V gamma, V beta) const {
    return Fma(d, hn::Mul(hn::Sub(hn::Sub(x, mean_hi), mean_lo), rstd), gamma, beta);
  }
};

// Columns [from, to) of a block; to - from is a multiple of kMapStep. kStream: past the caches; y is then aligned to a
// whole vector.
inline constexpr size_t kMapStep = 2 * hn::MaxLanes(DF32());

template <bool kStream, class A, class T>
HWY_INLINE void MapColumns(const MapScalars<A>& scalars, const T* x, const A* gamma, const A* beta, size_t from,
                           size_t to, T* y) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const MapVectors<hn::ScalableTag<A>> map(d, scalars);
#pragma GCC unroll 1
  for (size_t i = from; i < to; i += 2 * kN) {
    const auto a = map(d, LoadArithmetic(d, x + i), hn::LoadU(d, gamma + i), hn::LoadU(d, beta + i));
    const auto b = map(d, LoadArithmetic(d, x + i + kN), hn::LoadU(d, gamma + i + kN), hn::LoadU(d, beta + i + kN));
    StorePair<kStream>(a, b, d, y + i);
  }
}

// The columns of an n-column block from a multiple of kMapStep on, fewer than kMapStep.
template <class A, class T>
HWY_INLINE void MapTail(const MapScalars<A>& scalars, const T* x, const A* gamma, const A* beta, size_t n, T* y) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const MapVectors<hn::ScalableTag<A>> map(d, scalars);
  size_t i = n / kMapStep * kMapStep;
  for (; i + kN <= n; i += kN) {
    StoreArithmetic(map(d, LoadArithmetic(d, x + i), hn::LoadU(d, gamma + i), hn::LoadU(d, beta + i)), d, y + i);
  }
  if (i == n) return;
  const size_t rest = n - i;
  T x_tail[kN] = {};
  T y_tail[kN];
  A gamma_tail[kN] = {}, beta_tail[kN] = {};
  std::memcpy(x_tail, x + i, rest * sizeof(T));
  std::memcpy(gamma_tail, gamma + i, rest * sizeof(A));
  std::memcpy(beta_tail, beta + i, rest * sizeof(A));
  StoreArithmetic(map(d, LoadArithmetic(d, x_tail), hn::LoadU(d, gamma_tail), hn::LoadU(d, beta_tail)), d, y_tail);
  std::memcpy(y + i, y_tail, rest * sizeof(T));
}

template <class A, class T>
HWY_INLINE void MapWhole(bool stream, const MapScalars<A>& scalars, const T* x, const A* gamma, const A* beta, size_t n,
                         T* y) {
  const size_t whole = n / kMapStep * kMapStep;
  if (stream) {
    MapColumns<true>(scalars, x, gamma, beta, 0, whole, y);
  } else {
    MapColumns<false>(scalars, x, gamma, beta, 0, whole, y);
  }
  MapTail(scalars, x, gamma, beta, n, y);
}

template <class T>
constexpr T CanonicalNan() {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return {0x7FC0};
  } else if constexpr (std::is_same_v<T, float16>) {
    return {0x7E00};
  } else {
    return std::numeric_limits<T>::quiet_NaN();
  }
}
template <class T>
HWY_INLINE bool IsNan(T v) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return (v.bits & 0x7FFF) > 0x7F80;
  } else if constexpr (std::is_same_v<T, float16>) {
    return (v.bits & 0x7FFF) > 0x7C00;
  } else {
    return v != v;
  }
}

// Payloads and signs of NaNs differ between targets.
template <class T>
HWY_NOINLINE void CanonicalizeNans(T* y, size_t n) {
  const T canonical = CanonicalNan<T>();
  for (size_t i = 0; i < n; ++i) {
    if (IsNan(LoadOne(y + i))) StoreOne(canonical, y + i);
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard

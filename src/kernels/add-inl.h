// Adds two rows, one of them scaled, and rounds to the type of the first. Also fills rows, and copies with non-temporal
// stores. Knows nothing of norms. Included once per target.
#pragma once

#include <cstring>
#include <limits>

#include "kernels/kernels.hpp"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Replaces NaNs by the canonical one. Other NaNs could round to infinity, and differ between targets.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V WithCanonicalNans(D d, V v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()), v);
}

// to = fma(scale, r, x) for n elements in B's arithmetic. kStream: with non-temporal stores; `to` must be aligned to a
// whole vector.
template <bool kStream, class B, class X>
HWY_INLINE void AddScaled(B scale, const X* x, const X* r, size_t n, X* to) {
  const hn::ScalableTag<B> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const auto factor = hn::Set(d, scale);
  const auto sum = [&](const X* xs, const X* rs) HWY_ATTR {
    return WithCanonicalNans(d, Fma(d, factor, LoadArithmetic(d, rs), LoadArithmetic(d, xs)));
  };
  size_t i = 0;
#pragma GCC unroll 1
  for (; i + 2 * kN <= n; i += 2 * kN) {
    const auto a = sum(x + i, r + i);
    const auto b = sum(x + i + kN, r + i + kN);
    StorePair<kStream>(a, b, d, to + i);
  }
  if (i == n) return;
  X x_tail[2 * kN] = {}, r_tail[2 * kN] = {}, to_tail[2 * kN];
  std::memcpy(x_tail, x + i, (n - i) * sizeof(X));
  std::memcpy(r_tail, r + i, (n - i) * sizeof(X));
  StorePair<false>(sum(x_tail, r_tail), sum(x_tail + kN, r_tail + kN), d, to_tail);
  std::memcpy(to + i, to_tail, (n - i) * sizeof(X));
}

template <class T>
void AddRows(Arithmetic<T> scale, const T* x, const T* r, size_t n, T* to, bool stream) {
  stream&& IsAlignedToVector(to) ? AddScaled<true>(scale, x, r, n, to) : AddScaled<false>(scale, x, r, n, to);
}

template <class A>
void FillColumns(A value, size_t n, A* to) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  size_t i = 0;
  for (; i + kN <= n; i += kN) hn::StoreU(hn::Set(d, value), d, to + i);
  for (; i < n; ++i) to[i] = value;
}

// Copies with non-temporal stores, except for a last incomplete vector. `to` must be aligned to a whole vector.
inline void StreamCopyBytes(const void* from, void* to, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto* source = static_cast<const uint8_t*>(from);
  auto* target = static_cast<uint8_t*>(to);
  const size_t whole = bytes / hn::MaxLanes(d) * hn::MaxLanes(d);
  for (size_t i = 0; i < whole; i += hn::MaxLanes(d)) hn::Stream(hn::LoadU(d, source + i), d, target + i);
  std::memcpy(target + whole, source + whole, bytes - whole);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

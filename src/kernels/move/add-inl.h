// Adds two rows, one of them scaled, and rounds to the type of the first. Adds sums over rows of many columns. Also
// fills rows, and copies with non-temporal stores. Knows nothing of norms. Included once per target.
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
  const auto sum = [&](auto xs, auto rs) HWY_ATTR { return WithCanonicalNans(d, Fma(d, factor, rs, xs)); };
  const auto sum_at = [&](size_t at) HWY_ATTR { return sum(LoadArithmetic(d, x + at), LoadArithmetic(d, r + at)); };
  size_t i = 0;
#pragma GCC unroll 1
  for (; i + 2 * kN <= n; i += 2 * kN) {
    const auto a = sum_at(i);
    const auto b = sum_at(i + kN);
    StorePair<kStream>(a, b, d, to + i);
  }
  for (; i < n; i += kN) {
    StoreFirst(sum(LoadFirst(d, x + i, n - i), LoadFirst(d, r + i, n - i)), d, to + i, n - i);
  }
}

template <class T>
void AddRows(Arithmetic<T> scale, const T* x, const T* r, size_t n, T* to, bool stream) {
  stream&& FillsLines(to, n) ? AddScaled<true>(scale, x, r, n, to) : AddScaled<false>(scale, x, r, n, to);
}

template <class A>
void FillColumns(A value, size_t n, A* to) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  size_t i = 0;
  for (; i + kN <= n; i += kN) hn::StoreU(hn::Set(d, value), d, to + i);
  for (; i < n; ++i) to[i] = value;
}

// Copies with non-temporal stores, except for a last incomplete vector. `to` must be aligned to a cache line.
inline void StreamCopyBytes(const void* from, void* to, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto* source = static_cast<const uint8_t*>(from);
  auto* target = static_cast<uint8_t*>(to);
  const size_t whole = bytes / hn::MaxLanes(d) * hn::MaxLanes(d);
  for (size_t i = 0; i < whole; i += hn::MaxLanes(d)) hn::Stream(hn::LoadU(d, source + i), d, target + i);
  std::memcpy(target + whole, source + whole, bytes - whole);
}

// Sums over rows: joined, and completed at the end.
inline void AddColumns(double* left, const double* right, size_t count) {
  const DF64 d;
  constexpr size_t kN = hn::MaxLanes(d);
  size_t i = 0;
  for (; i + kN <= count; i += kN) hn::StoreU(hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i)), d, left + i);
  for (; i < count; ++i) left[i] += right[i];
}

inline bool SumColumns(const double* sums, const double* there, size_t n, double* values) {
  const auto sum = [&](auto d, size_t i, auto& finite) HWY_ATTR {
    auto value = hn::LoadU(d, sums + i);
    if (there != nullptr) value = hn::Add(value, hn::LoadU(d, there + i));
    hn::StoreU(value, d, values + i);
    finite = hn::MulAdd(value, hn::Zero(d), finite);  // stays 0 while all are finite, else becomes NaN
  };
  const DF64 d;
  constexpr size_t kN = hn::MaxLanes(d);
  auto even = hn::Zero(d), odd = even;
  size_t i = 0;
  for (; i + 2 * kN <= n; i += 2 * kN) sum(d, i, even), sum(d, i + kN, odd);
  const hn::CappedTag<double, 1> d1;
  auto rest = hn::Zero(d1);
  for (; i < n; ++i) sum(d1, i, rest);
  return hn::GetLane(rest) == 0 && hn::AllTrue(d, hn::Eq(hn::Add(even, odd), hn::Zero(d)));
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

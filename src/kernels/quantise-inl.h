// Integers of 8 bits: the largest magnitude of a row, and its elements by a factor. Knows nothing of norms.
// Included once per target.
#pragma once

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/kernels.hpp"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// As bits, since magnitudes are in the order of their bits, infinity and then NaNs last. Four of each, since each is a
// chain.
template <class A>
HWY_INLINE A LargestFinite(const A* values, size_t n, A largest) {
  const hn::ScalableTag<A> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  using Bits = hn::TFromD<decltype(du)>;
  constexpr size_t kN = hn::MaxLanes(d), kChains = 4;
  const auto magnitudes = [&](const A* from) HWY_ATTR { return hn::BitCast(du, hn::Abs(hn::LoadU(d, from))); };
  hn::Vec<decltype(du)> most[kChains];
  for (auto& chain : most) chain = hn::Set(du, std::bit_cast<Bits>(largest));
  size_t i = 0;
#pragma GCC unroll 1
  for (; i + kChains * kN <= n; i += kChains * kN) {
    for (size_t c = 0; c < kChains; ++c) most[c] = hn::Max(most[c], magnitudes(values + i + c * kN));
  }
  for (; i + kN <= n; i += kN) most[0] = hn::Max(most[0], magnitudes(values + i));
  if (i != n) {
    A tail[kN] = {};
    std::memcpy(tail, values + i, (n - i) * sizeof(A));
    most[1] = hn::Max(most[1], magnitudes(tail));
  }
  const auto all = hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
  const A found = std::bit_cast<A>(hn::GetLane(hn::MaxOfLanes(du, all)));
  return found <= std::numeric_limits<A>::max() ? found : std::numeric_limits<A>::quiet_NaN();
}

template <class A>
void LargestOfRows(EvenRows<const A> values, size_t rows, size_t n, A* largest) {
  for (size_t i = 0; i < rows; ++i) largest[i] = LargestFinite(values.at(i), n, largest[i]);
}

// To the nearest integer, ties to even, for magnitudes far below the constant: its last place is 1.
template <class A>
inline constexpr A kRoundsToInteger = std::is_same_v<A, double> ? A(0x1.8p52) : A(0x1.8p23);

// values * factor as integers of 8 bits. kAny: numbers of any size, and NaN to 0; else the products are known to round
// to at most 127 in magnitude.
template <bool kAny, class D>
HWY_INLINE void StoreInt8(D d, hn::Vec<D> values, hn::Vec<D> factor, int8_t* to) {
  using A = hn::TFromD<D>;
  auto product = hn::Mul(values, factor);
  if constexpr (kAny) {
    const auto bound = hn::Set(d, static_cast<A>(kLargestInt8));
    product = hn::IfThenElseZero(hn::Eq(product, product), product);
    product = hn::Min(hn::Max(product, hn::Neg(bound)), bound);
  }
  // The lowest bits of the sum are those of the integer.
  const auto sum = hn::Add(product, hn::Set(d, kRoundsToInteger<A>));
  const hn::Rebind<uint8_t, D> d8;
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, sum)), d8, reinterpret_cast<uint8_t*>(to));
}

template <bool kAny, class A>
HWY_INLINE void QuantiseSpan(const A* values, size_t n, float factor, int8_t* to) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const auto by = hn::Set(d, static_cast<A>(factor));
  size_t i = 0;
#pragma GCC unroll 4
  for (; i + kN <= n; i += kN) StoreInt8<kAny>(d, hn::LoadU(d, values + i), by, to + i);
  if (i == n) return;
  A tail[kN] = {};
  int8_t to_tail[kN];
  std::memcpy(tail, values + i, (n - i) * sizeof(A));
  StoreInt8<kAny>(d, hn::LoadU(d, tail), by, to_tail);
  std::memcpy(to + i, to_tail, n - i);
}

template <class A>
void QuantiseRows(const QuantisedRows<A>& rows) {
  for (size_t i = 0; i < rows.rows; ++i) {
    const A* values = rows.values.at(i);
    rows.any[i] ? QuantiseSpan<true>(values, rows.n, rows.factors[i], rows.to.at(i))
                : QuantiseSpan<false>(values, rows.n, rows.factors[i], rows.to.at(i));
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

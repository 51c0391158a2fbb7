// 8-bit integers: the largest magnitude of a row, and its conversion. Knows nothing of norms. Included once per target.
#pragma once

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/kernels.hpp"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The largest magnitudes of a row in each lane, as bits. Bits order magnitudes correctly, with infinity and then NaNs
// last. Four vectors are used, because each is a chain of dependent operations.
template <class A, class DU = hn::RebindToUnsigned<hn::ScalableTag<A>>>
HWY_INLINE hn::Vec<DU> LargestMagnitudes(const A* values, size_t n, A largest) {
  const hn::ScalableTag<A> d;
  const DU du;
  constexpr size_t kN = hn::MaxLanes(d), kChains = 4;
  const auto magnitudes = [&](auto v) HWY_ATTR { return hn::BitCast(du, hn::Abs(v)); };
  hn::Vec<DU> most[kChains];
  for (auto& chain : most) chain = hn::Set(du, std::bit_cast<hn::TFromD<DU>>(largest));
  size_t i = 0;
#pragma GCC unroll 1
  for (; i + kChains * kN <= n; i += kChains * kN) {
    for (size_t c = 0; c < kChains; ++c) most[c] = hn::Max(most[c], magnitudes(hn::LoadU(d, values + i + c * kN)));
  }
  for (; i + kN <= n; i += kN) most[0] = hn::Max(most[0], magnitudes(hn::LoadU(d, values + i)));
  if (i != n) most[1] = hn::Max(most[1], magnitudes(LoadFirst(d, values + i, n - i)));
  return hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
}

#if HWY_TARGET != HWY_SCALAR
using DU128 = hn::Full128<uint32_t>;
template <class V>
HWY_INLINE hn::Vec<DU128> To128(V v) {
  constexpr hn::DFromV<V> d;
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<decltype(d)> half;
    return To128(hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
// The largest magnitude of each of four rows.
HWY_INLINE hn::Vec<DU128> LargestOfFour(hn::Vec<DU128> a, hn::Vec<DU128> b, hn::Vec<DU128> c, hn::Vec<DU128> e) {
  const DU128 d;
  const auto ab = hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Max(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  return hn::Max(hn::ConcatLowerLower(d, ce, ab), hn::ConcatUpperUpper(d, ce, ab));
}
#endif

template <class A>
void LargestOfRows(EvenRows<const A> values, size_t rows, size_t n, A* largest) {
  const hn::RebindToUnsigned<hn::ScalableTag<A>> du;
  const auto finite = [](A found) {
    return found <= std::numeric_limits<A>::max() ? found : std::numeric_limits<A>::quiet_NaN();
  };
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<A, float>) {  // four rows at once: for single rows, reducing lanes is most of the work
    const hn::RebindToFloat<DU128> df;
    for (; i + 4 <= rows; i += 4) {
      hn::Vec<DU128> most[4];
      for (size_t r = 0; r < 4; ++r) most[r] = To128(LargestMagnitudes(values.at(i + r), n, largest[i + r]));
      const auto found = hn::BitCast(df, LargestOfFour(most[0], most[1], most[2], most[3]));
      const auto is_finite = hn::Le(found, hn::Set(df, std::numeric_limits<A>::max()));
      hn::StoreU(hn::IfThenElse(is_finite, found, hn::NaN(df)), df, largest + i);
    }
  }
#endif
  for (; i < rows; ++i) {
    const auto most = hn::MaxOfLanes(du, LargestMagnitudes(values.at(i), n, largest[i]));
    largest[i] = finite(std::bit_cast<A>(hn::GetLane(most)));
  }
}

// Adding this constant rounds much smaller numbers to the nearest integer, ties to even: its last place is 1.
template <class A>
inline constexpr A kRoundsToInteger = std::is_same_v<A, double> ? A(0x1.8p52) : A(0x1.8p23);

// values * factor, which round to at most 127 in magnitude. kAny: numbers may be of any size, and NaN becomes 0.
// Otherwise products are known to be in range.
template <bool kAny, class D, class V = hn::Vec<D>>
HWY_INLINE V ProductsForInt8(D d, V values, V factor) {
  const V product = hn::Mul(values, factor);
  if constexpr (!kAny) return product;
  const V bound = hn::Set(d, static_cast<hn::TFromD<D>>(kLargestInt8));
  return hn::Min(hn::Max(hn::IfThenElseZero(hn::Eq(product, product), product), hn::Neg(bound)), bound);
}
template <class D>
HWY_INLINE void StoreInt8(D d, hn::Vec<D> products, int8_t* to) {
  // The lowest bits of the sum are the integer.
  const auto sum = hn::Add(products, hn::Set(d, kRoundsToInteger<hn::TFromD<D>>));
  const hn::Rebind<uint8_t, D> d8;
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, sum)), d8, reinterpret_cast<uint8_t*>(to));
}

// Four vectors of products become one vector of integers: they are packed, then put in order. One by one, each vector
// would take two shuffles with AVX-512, more without, and a store.
#if HWY_TARGET == HWY_AVX3
using BytesInRegister = __m512i;
HWY_INLINE BytesInRegister Integers(hn::Vec<DF32> v) { return _mm512_cvtps_epi32(v.raw); }
HWY_INLINE BytesInRegister PackTo16(BytesInRegister a, BytesInRegister b) { return _mm512_packs_epi32(a, b); }
HWY_INLINE BytesInRegister PackTo8(BytesInRegister a, BytesInRegister b) { return _mm512_packs_epi16(a, b); }
#elif HWY_TARGET == HWY_AVX2
using BytesInRegister = __m256i;
HWY_INLINE BytesInRegister Integers(hn::Vec<DF32> v) { return _mm256_cvtps_epi32(v.raw); }
HWY_INLINE BytesInRegister PackTo16(BytesInRegister a, BytesInRegister b) { return _mm256_packs_epi32(a, b); }
HWY_INLINE BytesInRegister PackTo8(BytesInRegister a, BytesInRegister b) { return _mm256_packs_epi16(a, b); }
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
HWY_INLINE void StoreFourInt8(const hn::Vec<DF32> (&products)[4], int8_t* to) {
  const hn::RebindToUnsigned<DF32> du;
  // Each 16-byte part has four integers of each vector. Place kParts v + p takes those of vector v in part p.
  constexpr uint32_t kParts = sizeof(BytesInRegister) / 16;
  HWY_ALIGN uint32_t places[hn::MaxLanes(du)];
  for (uint32_t i = 0; i < 4 * kParts; ++i) places[i] = 4 * (i % kParts) + i / kParts;
  const auto packed = PackTo8(PackTo16(Integers(products[0]), Integers(products[1])),
                              PackTo16(Integers(products[2]), Integers(products[3])));
  const auto ordered = hn::TableLookupLanes(hn::Vec<decltype(du)>{packed}, hn::SetTableIndices(du, places));
  hn::StoreU(ordered, du, reinterpret_cast<uint32_t*>(to));
}
#endif

template <bool kAny, class A>
HWY_INLINE void QuantiseSpan(const A* values, size_t n, float factor, int8_t* to) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const auto by = hn::Set(d, static_cast<A>(factor));
  const auto products = [&](const A* from) HWY_ATTR { return ProductsForInt8<kAny>(d, hn::LoadU(d, from), by); };
  size_t i = 0;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if constexpr (std::is_same_v<A, float>) {
#pragma GCC unroll 1
    for (; i + 4 * kN <= n; i += 4 * kN) {
      const A* from = values + i;
      StoreFourInt8({products(from), products(from + kN), products(from + 2 * kN), products(from + 3 * kN)}, to + i);
    }
  }
#endif
#pragma GCC unroll 1
  for (; i + kN <= n; i += kN) StoreInt8(d, products(values + i), to + i);
  if (i == n) return;
  int8_t to_tail[kN];
  StoreInt8(d, ProductsForInt8<kAny>(d, LoadFirst(d, values + i, n - i), by), to_tail);
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

// What Highway leaves open, defined so that every target gives the same bits: fused multiply-add, and loads and stores
// of the four storage types. Knows nothing of rows. Included once per target.
#pragma once

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// For loops that several kernels share: inlined where this is faster. Elsewhere the library would only grow by a third.
#if HWY_NATIVE_FMA
#define EVENORM_INLINE_LOOP HWY_INLINE
#else
#define EVENORM_INLINE_LOOP HWY_NOINLINE
#endif

using DF64 = hn::ScalableTag<double>;
using DF32 = hn::ScalableTag<float>;

// a * b + c, rounded once, on every target. Only the portable target, which has one lane, has no instruction for it.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Fma(D d, V a, V b, V c) {
  if constexpr (HWY_NATIVE_FMA) return hn::MulAdd(a, b, c);
  return hn::Set(d, std::fma(hn::GetLane(a), hn::GetLane(b), hn::GetLane(c)));
}

// -(a * b) + c, rounded once.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NegatedFma(D d, V a, V b, V c) {
  if constexpr (HWY_NATIVE_FMA) return hn::NegMulAdd(a, b, c);
  return Fma(d, hn::Neg(a), b, c);
}

// F16C and AArch64 convert binary16 exactly and round to nearest even, whatever the flush modes. Highway's portable
// target truncates and ignores infinities, so that it uses these two functions instead.
inline constexpr bool kHardwareF16 = HWY_TARGET != HWY_SCALAR;

inline float F32FromF16Bits(uint32_t half) {
  const uint32_t magnitude = (half & 0x7FFFu) << 13, sign = (half & 0x8000u) << 16;
  if (magnitude > 0x0F7FFFFFu) return std::bit_cast<float>(magnitude | 0x7F800000u | sign);
  // The multiplication changes the bias of the exponent and makes binary16's subnormals normal, exactly.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) | sign);
}
// Rounds to nearest even; NaN becomes 0x7E00.
inline uint16_t F16BitsFromF32(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const uint32_t magnitude = bits & 0x7FFFFFFFu, sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7F800000u) return 0x7E00;
  if (magnitude > 0x477FEFFFu) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude > 0x387FFFFFu) {
    const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | (rounded - (112u << 23)) >> 13);
  }
  // Adding 0.5 puts the unit of binary16's subnormals at the last place of an f32.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
}

// Rounds to nearest even; the low half is arbitrary. A NaN must be the canonical one, 0x7FC00000, because others could
// round to infinity.
template <class DU32>
HWY_INLINE hn::Vec<DU32> BF16InHighHalf(DU32 du, hn::Vec<hn::RebindToFloat<DU32>> v) {
  const auto bits = hn::BitCast(du, v);
  const auto rounded = hn::Add(bits, hn::Set(du, 0x7FFFu));
#if HWY_TARGET == HWY_AVX2  // shifts have half as many ports as comparisons
  const auto last = hn::Set(du, 0x10000u);
  return hn::Sub(rounded, hn::VecFromMask(du, hn::Eq(hn::And(bits, last), last)));
#else
  return hn::Add(rounded, hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u)));
#endif
}

// Elements of type T, in the arithmetic of their type and as they are stored. 16-bit numbers are rounded once.
template <class T, class D>
HWY_INLINE hn::Vec<D> FromElements(D d, hn::Vec<hn::Rebind<BitsOf<T>, D>> bits) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
  } else if constexpr (std::is_same_v<T, float16>) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
  } else {
    return hn::BitCast(d, bits);
  }
}
template <class T, class D>
HWY_INLINE hn::Vec<hn::Rebind<BitsOf<T>, D>> ToElements(D, hn::Vec<D> v) {
  const hn::Rebind<BitsOf<T>, D> bits;
  if constexpr (std::is_same_v<T, bfloat16>) {
    const auto rounded = hn::ShiftRight<16>(BF16InHighHalf(hn::RebindToUnsigned<D>(), v));
    return hn::DemoteTo(bits, hn::BitCast(hn::RebindToSigned<D>(), rounded));
  } else if constexpr (std::is_same_v<T, float16>) {
    return hn::BitCast(bits, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
  } else {
    return hn::BitCast(bits, v);
  }
}

// Loads and stores Lanes(d) elements at p.
template <class D>
HWY_INLINE hn::Vec<D> LoadArithmetic(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <class D, class T>
requires(sizeof(T) == 2) HWY_INLINE hn::Vec<D> LoadArithmetic(D d, const T* p) {
  if constexpr (std::is_same_v<T, float16> && !kHardwareF16) return hn::Set(d, F32FromF16Bits(load_one(p).bits));
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, bfloat16> && hn::MaxLanes(D()) == 8) {
    const auto words = _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const auto places = hn::ShiftRight<1>(hn::Iota(hn::Repartition<uint16_t, D>(), 0));
    return {_mm256_castsi256_ps(_mm256_maskz_permutexvar_epi16(0xAAAA, places.raw, words))};
  }
#endif
  return FromElements<T>(d, hn::LoadU(hn::Rebind<BitsOf<T>, D>(), reinterpret_cast<const BitsOf<T>*>(p)));
}
template <class D, class T>
HWY_INLINE void StoreArithmetic(hn::Vec<D> v, D d, T* p) {
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) return hn::StoreU(v, d, p);
  if constexpr (std::is_same_v<T, float16> && !kHardwareF16) return store_one(F16BitsFromF32(hn::GetLane(v)), p);
  hn::StoreU(ToElements<T>(d, v), hn::Rebind<BitsOf<T>, D>(), reinterpret_cast<BitsOf<T>*>(p));
}

// Rounds once. Numbers beyond f32's range become infinity, which Highway's portable target would clamp.
template <class DF, class D64 = hn::Rebind<double, DF>>
HWY_INLINE hn::Vec<DF> NarrowToF32(DF df, hn::Vec<D64> v) {
  if constexpr (HWY_TARGET == HWY_SCALAR) return hn::Set(df, static_cast<float>(hn::GetLane(v)));
  return hn::DemoteTo(df, v);
}

// Loads Lanes(d) elements at p as f64, exactly.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadF64(D d, const T* p) {
  if constexpr (std::is_same_v<T, double>) {
    return hn::LoadU(d, p);
  } else {
    return hn::PromoteTo(d, LoadArithmetic(hn::Rebind<float, D>(), p));
  }
}

// Calls use(vector, its first lane) for the lanes of v as f64.
template <class V, class Use>
HWY_INLINE void ForEachF64(V v, const Use& use) {
  const DF64 d;
  if constexpr (std::is_same_v<V, hn::Vec<DF64>>) {
    use(v, size_t{0});
  } else if constexpr (hn::MaxLanes(hn::DFromV<V>()) == hn::MaxLanes(d)) {
    use(hn::PromoteTo(d, v), size_t{0});
  } else {  // the portable target has no halves
    const hn::Half<hn::DFromV<V>> half;
    use(hn::PromoteTo(d, LowerHalf(half, v)), size_t{0});
    use(hn::PromoteTo(d, UpperHalf(half, v)), hn::MaxLanes(d));
  }
}

// The even or odd ones of 2 * Lanes(d) bf16 elements as f64, exactly.
template <bool kOdd, class D, class V = hn::Vec<hn::Rebind<uint32_t, D>>>
HWY_INLINE hn::Vec<D> HalfInF64(D d, V pairs) {
  const hn::RebindToUnsigned<hn::Rebind<float, D>> du;
  const auto bits = kOdd ? hn::And(pairs, hn::Set(du, 0xFFFF0000u)) : hn::ShiftLeft<16>(pairs);
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<float, D>(), bits));
}

// True if a target has masks for elements of this size. Without, Highway's MaskedLoad reads all lanes, also those that
// do not exist.
template <class T>
inline constexpr bool kHasMasks = HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(T) >= sizeof(float));

HWY_INLINE size_t LeftFrom(size_t c, size_t n) { return n > c ? n - c : 0; }  // of n columns, those from c on

// True if columns that do not fill vectors are read and written by masks like others. Other types do not gain.
template <class T>
inline constexpr bool kByMasks = HWY_TARGET == HWY_AVX3 && (std::is_same_v<T, float> || std::is_same_v<T, bfloat16>);

// Whole elements in a word, for targets without masks: the first 8 bytes at p, or as many as there are, with 0 after
// them. Some may be read or written twice. A library's function would take as long as a short row.
HWY_INLINE uint64_t LoadWord(const void* place, size_t bytes) {
  const char* p = static_cast<const char*>(place);
  const auto half = [&](size_t at) { return uint64_t{load_one(reinterpret_cast<const uint32_t*>(p + at))}; };
  if (bytes >= 8) return load_one(reinterpret_cast<const uint64_t*>(p));
  if (bytes >= 4) return half(0) | half(bytes - 4) << 8 * (bytes - 4);
  return bytes == 0 ? uint16_t{0} : load_one(reinterpret_cast<const uint16_t*>(p));
}
HWY_INLINE void StoreWord(uint64_t word, size_t bytes, void* place) {
  char* p = static_cast<char*>(place);
  if (bytes >= 8) return store_one(word, p);
  if (bytes >= 4) {
    store_one(static_cast<uint32_t>(word), p);
    store_one(static_cast<uint32_t>(word >> 8 * (bytes - 4)), p + bytes - 4);
  } else if (bytes != 0) {
    store_one(static_cast<uint16_t>(word), p);
  }
}

// Loads the first n elements at p, all if they are more, with 0 in the other lanes; stores the first n lanes to p.
template <class DU, class T>
HWY_INLINE hn::Vec<DU> LoadFirstBits(DU d, const T* p, size_t n) {
  if constexpr (kHasMasks<T>) {
    const hn::Repartition<BitsOf<T>, DU> bits;
    return hn::BitCast(d, hn::MaskedLoad(hn::FirstN(bits, n), bits, reinterpret_cast<const BitsOf<T>*>(p)));
  } else {
    constexpr size_t kBytes = hn::MaxLanes(DU()) * sizeof(hn::TFromD<DU>);
    using Word = hwy::UnsignedFromSize<HWY_MIN(kBytes, sizeof(uint64_t))>;
    const hn::Repartition<Word, DU> words;
    auto loaded = hn::Set(words, static_cast<Word>(LoadWord(p, HWY_MIN(n * sizeof(T), sizeof(Word)))));
    if constexpr (kBytes > sizeof(Word)) {
      loaded = hn::InsertLane(loaded, 1, LoadWord(p + 8 / sizeof(T), LeftFrom(8, n * sizeof(T))));
    }
    return hn::BitCast(d, loaded);
  }
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* p, size_t n) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return n != 0 ? LoadArithmetic(d, p) : hn::Zero(d);
  } else {
    return FromElements<T>(d, LoadFirstBits(hn::Rebind<BitsOf<T>, D>(), p, n));
  }
}
template <class D, class T>
HWY_INLINE void StoreFirst(hn::Vec<D> v, D d, T* p, size_t n) {
  const hn::Rebind<BitsOf<T>, D> bits;
  if constexpr (hn::MaxLanes(D()) == 1) {
    if (n != 0) StoreArithmetic(v, d, p);
  } else if constexpr (kHasMasks<T>) {
    hn::BlendedStore(ToElements<T>(d, v), hn::FirstN(bits, n), bits, reinterpret_cast<BitsOf<T>*>(p));
  } else {
    const hn::Repartition<uint64_t, decltype(bits)> words;
    const auto stored = hn::BitCast(words, ToElements<T>(d, v));
    StoreWord(hn::GetLane(stored), n * sizeof(T), p);
    if constexpr (hn::MaxLanes(words) == 2) {
      StoreWord(hn::ExtractLane(stored, 1), LeftFrom(8, n * sizeof(T)), p + 8 / sizeof(T));
    }
  }
}

template <bool kStream, class V, class D>
HWY_INLINE void StoreWhole(V v, D d, hn::TFromD<D>* p) {
  if constexpr (kStream) {
    hn::Stream(v, d, p);
  } else {
    hn::StoreU(v, d, p);
  }
}

// The bits of a pair, rounded to nearest even like BF16InHighHalf(). If the CPU has an instruction for this, its result
// is not used if it has zeros, because the instruction takes subnormal f32 numbers for 0.
#if HWY_TARGET != HWY_SCALAR
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, D>> BF16FromPair(D, V a, V b) {
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<uint16_t, D> du16;
#if HWY_TARGET == HWY_AVX3
  if (HWY_LIKELY(kRoundsToBf16)) {
    __m512i rounded;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(rounded) : "v"(b.raw), "v"(a.raw));
    if (HWY_LIKELY(_mm512_testn_epi16_mask(rounded, _mm512_set1_epi16(0x7FFF)) == 0)) {
      return hn::Vec<decltype(du16)>{rounded};
    }
  }
#endif
  const auto low = hn::BitCast(du16, BF16InHighHalf(du, a)), high = hn::BitCast(du16, BF16InHighHalf(du, b));
  return hn::ConcatOdd(du16, high, low);
}
#endif

// Stores two vectors to consecutive places. kStream: with non-temporal stores; p must be aligned to a cache line.
template <bool kStream, class D, class T, class V = hn::Vec<D>>
HWY_INLINE void StorePair(V a, V b, D d, T* p) {
#if HWY_TARGET != HWY_SCALAR
  const hn::Repartition<uint16_t, D> du16;
  if constexpr (std::is_same_v<T, bfloat16>) {
    return StoreWhole<kStream>(BF16FromPair(d, a, b), du16, reinterpret_cast<uint16_t*>(p));
  } else if constexpr (std::is_same_v<T, float16> && kStream) {
    const hn::Rebind<hwy::float16_t, D> df16;
    const hn::Half<decltype(du16)> half;
    const auto low = hn::BitCast(half, hn::DemoteTo(df16, a)), high = hn::BitCast(half, hn::DemoteTo(df16, b));
    return hn::Stream(hn::Combine(du16, high, low), du16, reinterpret_cast<uint16_t*>(p));
  }
#endif
  if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    StoreWhole<kStream>(a, d, p);
    StoreWhole<kStream>(b, d, p + hn::Lanes(d));
  } else {
    StoreArithmetic(a, d, p);
    StoreArithmetic(b, d, p + hn::Lanes(d));
  }
}

// Two vectors of consecutive elements, in the arithmetic of their type.
template <class V>
struct PairOf {
  V a, b;
};
#if HWY_TARGET == HWY_AVX3
// Moves words to high halves, one permutation each. Widening and shifting takes two operations on the same ports.
HWY_INLINE PairOf<hn::Vec<DF32>> LoadBF16Pair(const bfloat16* p) {
  const hn::Repartition<uint16_t, DF32> du16;
  constexpr __mmask32 kOdd = 0xAAAAAAAA;
  const auto words = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p));
  const auto lower = hn::ShiftRight<1>(hn::Iota(du16, 0));
  const auto upper = hn::Add(lower, hn::Set(du16, 16));
  return {{_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(kOdd, lower.raw, words.raw))},
          {_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(kOdd, upper.raw, words.raw))}};
}
#endif
template <class D, class T>
HWY_INLINE PairOf<hn::Vec<D>> LoadPair(D d, const T* p) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, bfloat16>) return LoadBF16Pair(p);
#endif
  return {LoadArithmetic(d, p), LoadArithmetic(d, p + hn::Lanes(d))};
}

// The columns of n before y is aligned to a cache line, if that pays: stores across lines take twice as long.
template <class T>
HWY_INLINE size_t ColumnsToAligned(const T* y, size_t n) {
  const uintptr_t behind = reinterpret_cast<uintptr_t>(y) % kCacheLine;
  if (sizeof(T) < sizeof(float) || behind == 0 || behind % sizeof(T) != 0) return 0;
  return HWY_MIN((kCacheLine - behind) / sizeof(T), n);
}

// True if non-temporal stores pay for n elements here: these begin with a cache line and, where a vector is less than a
// line, end with one. Such stores to lines that rows share take up to six times as long.
template <class T>
HWY_INLINE bool FillsLines(const T* place, size_t n) {
  const size_t bytes = sizeof(hn::Vec<DF32>) == kCacheLine ? 0 : n * sizeof(T);
  return (reinterpret_cast<uintptr_t>(place) | bytes) % kCacheLine == 0;
}

// Prefetches what is `ahead` bytes behind `bytes` bytes, all at once. Spreading prefetches among loads of the same
// lines gained nothing (docs/lab/README.md, "Residual"). Past the end of a tensor this is harmless.
HWY_INLINE void PrefetchBehind(const void* place, size_t bytes, size_t ahead) {
  const auto first = reinterpret_cast<uintptr_t>(place) + ahead;
  for (size_t at = 0; at < bytes; at += kCacheLine) hwy::Prefetch(reinterpret_cast<const char*>(first + at));
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// What Highway leaves open, defined so that every target gives the same bits: fused multiply-add, and loads and stores
// of the four storage types. Knows nothing of rows. Included once per target.
#pragma once

#include <hwy/cache_control.h>
#include <hwy/highway.h>

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

#if !HWY_NATIVE_FMA
// Works element by element. Not inlined, because hundreds of places call it.
template <class D, class V = hn::Vec<D>>
HWY_NOINLINE V FmaByElements(D d, V a, V b, V c) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T as[hn::MaxLanes(d)];
  HWY_ALIGN T bs[hn::MaxLanes(d)];
  HWY_ALIGN T cs[hn::MaxLanes(d)];
  hn::Store(a, d, as);
  hn::Store(b, d, bs);
  hn::Store(c, d, cs);
  for (size_t i = 0; i < hn::Lanes(d); ++i) cs[i] = std::fma(as[i], bs[i], cs[i]);
  return hn::Load(d, cs);
}
#endif

// a * b + c, rounded once, on every target.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Fma(D d, V a, V b, V c) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulAdd(a, b, c);
#else
  return FmaByElements(d, a, b, c);
#endif
}

// -(a * b) + c, rounded once.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NegatedFma(D d, V a, V b, V c) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::NegMulAdd(a, b, c);
#else
  return FmaByElements(d, hn::Neg(a), b, c);
#endif
}

// F16C and AArch64 convert binary16 exactly and round to nearest even, whatever the flush modes. Highway's emulation
// for other targets truncates and ignores infinities, so they use the integer code below.
inline constexpr bool kHardwareF16 = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;

template <class DU32>
HWY_INLINE hn::Vec<hn::RebindToFloat<DU32>> F32FromF16Bits(DU32 du, hn::Vec<DU32> half) {
  const hn::RebindToFloat<DU32> df;
  const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7FFFu)));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  // The multiplication changes the bias of the exponent and makes binary16's subnormals normal, exactly.
  const auto scaled = hn::BitCast(du, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(du, 0x7F800000u));
  const hn::RebindToSigned<DU32> di;
  const auto is_special =
      hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<int32_t>(0x0F7FFFFF))));
  return hn::BitCast(df, hn::Or(hn::IfThenElse(is_special, special, scaled), sign));
}

// Rounds to nearest even; NaN becomes 0x7E00.
template <class DU32>
HWY_INLINE hn::Vec<DU32> F16BitsFromF32(DU32 du, hn::Vec<hn::RebindToFloat<DU32>> v) {
  const hn::RebindToFloat<DU32> df;
  const hn::RebindToSigned<DU32> di;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
  const auto greater = [&](hn::Vec<DU32> a, uint32_t b) {
    return hn::RebindMask(du, hn::Gt(hn::BitCast(di, a), hn::Set(di, static_cast<int32_t>(b))));
  };
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0xFFFu)), odd);
  const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du, 112u << 23)));
  // Adding 0.5 puts the unit of binary16's subnormals at the last place of an f32.
  const auto shifted = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3F000000u));
  auto result = hn::IfThenElse(greater(magnitude, 0x387FFFFFu), normal, subnormal);
  result = hn::IfThenElse(greater(magnitude, 0x477FEFFFu), hn::Set(du, 0x7C00u), result);
  result = hn::Or(result, sign);
  return hn::IfThenElse(greater(magnitude, 0x7F800000u), hn::Set(du, 0x7E00u), result);
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

// Loads Lanes(df) elements at p as f32, exactly.
template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF df, const float* p) {
  return hn::LoadU(df, p);
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF df, const bfloat16* p) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(DF()) == 8) {
    const auto words = _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const auto places = hn::ShiftRight<1>(hn::Iota(hn::Repartition<uint16_t, DF>(), 0));
    return {_mm256_castsi256_ps(_mm256_maskz_permutexvar_epi16(0xAAAA, places.raw, words))};
  }
#endif
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> du16;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF df, const float16* p) {
  if constexpr (kHardwareF16) {
    const hn::Rebind<hwy::float16_t, DF> df16;
    return hn::PromoteTo(df, hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(p)));
  } else {
    const hn::RebindToUnsigned<DF> du;
    const hn::Rebind<uint16_t, DF> du16;
    return F32FromF16Bits(du, hn::PromoteTo(du, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p))));
  }
}

// Stores the low halves of Lanes(du) 32-bit words to p.
template <class DU32>
HWY_INLINE void StoreLow16(hn::Vec<DU32> bits, DU32 du, uint16_t* p) {
  const hn::RebindToSigned<DU32> di;
  const hn::Rebind<uint16_t, DU32> du16;
  (void)du;
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, bits)), du16, p);
}

// Stores Lanes(df) elements to p, rounded once.
template <class DF>
HWY_INLINE void StoreF32(hn::Vec<DF> v, DF df, float* p) {
  hn::StoreU(v, df, p);
}
template <class DF>
HWY_INLINE void StoreF32(hn::Vec<DF> v, DF, bfloat16* p) {
  const hn::RebindToUnsigned<DF> du;
  StoreLow16(hn::ShiftRight<16>(BF16InHighHalf(du, v)), du, reinterpret_cast<uint16_t*>(p));
}
template <class DF>
HWY_INLINE void StoreF32(hn::Vec<DF> v, DF, float16* p) {
  if constexpr (kHardwareF16) {
    const hn::Rebind<hwy::float16_t, DF> df16;
    hn::StoreU(hn::DemoteTo(df16, v), df16, reinterpret_cast<hwy::float16_t*>(p));
  } else {
    const hn::RebindToUnsigned<DF> du;
    StoreLow16(F16BitsFromF32(du, v), du, reinterpret_cast<uint16_t*>(p));
  }
}

// Rounds once. Numbers beyond f32's range become infinity, which Highway's portable target would clamp.
template <class DF, class D64 = hn::Rebind<double, DF>>
HWY_INLINE hn::Vec<DF> NarrowToF32(DF df, hn::Vec<D64> v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(df, static_cast<float>(hn::GetLane(v)));
#else
  return hn::DemoteTo(df, v);
#endif
}

// Loads Lanes(d) elements at p as f64, exactly.
template <class D>
HWY_INLINE hn::Vec<D> LoadF64(D d, const double* p) {
  return hn::LoadU(d, p);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadF64(D d, const T* p) {
  return hn::PromoteTo(d, LoadF32(hn::Rebind<float, D>(), p));
}

// The lower and the upper half of a vector, exactly, as f64.
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE hn::Vec<DF64> LowerToF64(hn::Vec<DF32> v) {
  return hn::PromoteTo(DF64(), hn::LowerHalf(hn::Half<DF32>(), v));
}
HWY_INLINE hn::Vec<DF64> UpperToF64(hn::Vec<DF32> v) {
  return hn::PromoteTo(DF64(), hn::UpperHalf(hn::Half<DF32>(), v));
}
#endif

// Loads the even (odd) ones of 2 * Lanes(d) elements at p as f64, exactly.
template <class D>
HWY_INLINE hn::Vec<D> LoadEvenF64(D d, const bfloat16* p) {
  const hn::Rebind<float, D> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto words = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p));
  return hn::PromoteTo(d, hn::BitCast(df, hn::ShiftLeft<16>(words)));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadOddF64(D d, const bfloat16* p) {
  const hn::Rebind<float, D> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto words = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p));
  return hn::PromoteTo(d, hn::BitCast(df, hn::And(words, hn::Set(du, 0xFFFF0000u))));
}

// Loads and stores in the arithmetic of the storage type.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadArithmetic(D d, const T* p) {
  if constexpr (std::is_same_v<T, double>) {
    return hn::LoadU(d, p);
  } else {
    return LoadF32(d, p);
  }
}
template <class D, class T>
HWY_INLINE void StoreArithmetic(hn::Vec<D> v, D d, T* p) {
  if constexpr (std::is_same_v<T, double>) {
    hn::StoreU(v, d, p);
  } else {
    StoreF32(v, d, p);
  }
}

// True if a target has masks for elements of this size. Without, Highway's MaskedLoad reads all lanes, also those that
// do not exist.
template <class T>
inline constexpr bool kHasMasks = HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(T) >= sizeof(float));
// The elements of a type as bits.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;

// Elements of up to 16 bytes, with 0 behind them, for targets without masks. At least two bytes are all in two words,
// which may overlap; a library's function would take as long as a short row.
__extension__ using FewBytes = unsigned __int128;
template <class Word>
HWY_INLINE FewBytes TwoWords(const char* p, size_t bytes) {
  const size_t second = bytes - sizeof(Word);
  return load_one(reinterpret_cast<const Word*>(p)) | FewBytes{load_one(reinterpret_cast<const Word*>(p + second))}
                                                          << 8 * second;
}
template <class Word>
HWY_INLINE void StoreTwoWords(FewBytes v, size_t bytes, char* p) {
  const size_t second = bytes - sizeof(Word);
  store_one(static_cast<Word>(v), p);
  store_one(static_cast<Word>(v >> 8 * second), p + second);
}
HWY_INLINE FewBytes LoadBytes(const char* p, size_t bytes) {
  if (bytes >= 8) return TwoWords<uint64_t>(p, bytes);
  if (bytes >= 4) return TwoWords<uint32_t>(p, bytes);
  return bytes == 0 ? 0 : TwoWords<uint16_t>(p, bytes);
}
HWY_INLINE void StoreBytes(FewBytes v, size_t bytes, char* p) {
  if (bytes >= 8) return StoreTwoWords<uint64_t>(v, bytes, p);
  if (bytes >= 4) return StoreTwoWords<uint32_t>(v, bytes, p);
  if (bytes != 0) StoreTwoWords<uint16_t>(v, bytes, p);
}

// Copies the first n of kCount elements, and 0 in place of the others. `to` is aligned to a whole vector.
template <size_t kCount, class T>
HWY_INLINE void CopyFirst(const T* from, size_t n, T* to) {
  if constexpr (kHasMasks<T>) {
    const hn::CappedTag<BitsOf<T>, kCount> d;
    for (size_t i = 0; i < kCount; i += hn::MaxLanes(d)) {
      const auto exists = hn::FirstN(d, n > i ? n - i : 0);
      hn::Store(hn::MaskedLoad(exists, d, reinterpret_cast<const BitsOf<T>*>(from) + i), d,
                reinterpret_cast<BitsOf<T>*>(to) + i);
    }
  } else {
    constexpr size_t kBytes = kCount * sizeof(T), kPiece = HWY_MIN(kBytes, sizeof(FewBytes));
    const size_t bytes = HWY_MIN(n, kCount) * sizeof(T);
    for (size_t i = 0; i < kBytes; i += kPiece) {
      const size_t rest = bytes > i ? HWY_MIN(bytes - i, kPiece) : 0;
      const FewBytes piece = LoadBytes(reinterpret_cast<const char*>(from) + i, rest);
      std::memcpy(reinterpret_cast<char*>(to) + i, &piece, kPiece);
    }
  }
}

// Loads the first n elements at p, at most Lanes(d), with 0 in the other lanes; stores the first n lanes to p.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* p, size_t n) {
  if constexpr (kHasMasks<T> && std::is_same_v<T, hn::TFromD<D>>) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, p);
  } else {
    HWY_ALIGN T first[hn::MaxLanes(d)];
    CopyFirst<hn::MaxLanes(d)>(p, n, first);
    return LoadArithmetic(d, first);
  }
}
template <class D, class T>
HWY_INLINE void StoreFirst(hn::Vec<D> v, D d, T* p, size_t n) {
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  StoreArithmetic(v, d, lanes);
  if constexpr (kHasMasks<T>) {
    const hn::Rebind<BitsOf<T>, D> bits;
    hn::BlendedStore(hn::Load(bits, reinterpret_cast<const BitsOf<T>*>(lanes)), hn::FirstN(bits, n), bits,
                     reinterpret_cast<BitsOf<T>*>(p));
  } else {
    constexpr size_t kPiece = HWY_MIN(sizeof(lanes), sizeof(FewBytes));
    const size_t bytes = HWY_MIN(n, hn::MaxLanes(d)) * sizeof(T);
    for (size_t i = 0; i < bytes; i += kPiece) {
      FewBytes piece = 0;
      std::memcpy(&piece, reinterpret_cast<const char*>(lanes) + i, kPiece);
      StoreBytes(piece, HWY_MIN(bytes - i, kPiece), reinterpret_cast<char*>(p) + i);
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
  if (HWY_LIKELY(rounds_to_bf16)) {
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

// Stores two vectors to consecutive places. kStream: with non-temporal stores; p must be aligned to a whole vector.
template <bool kStream, class D, class T, class V = hn::Vec<D>>
HWY_INLINE void StorePair(V a, V b, D d, T* p) {
  if constexpr (sizeof(T) == sizeof(hn::TFromD<D>)) {
    StoreWhole<kStream>(a, d, p);
    StoreWhole<kStream>(b, d, p + hn::Lanes(d));
  } else {
#if HWY_TARGET == HWY_SCALAR
    StoreF32(a, d, p);
    StoreF32(b, d, p + 1);
#else
    if constexpr (std::is_same_v<T, bfloat16>) {
      const hn::Repartition<uint16_t, D> du16;
      StoreWhole<kStream>(BF16FromPair(d, a, b), du16, reinterpret_cast<uint16_t*>(p));
    } else if constexpr (kStream && kHardwareF16) {
      const hn::Rebind<hwy::float16_t, D> df16;
      const hn::Repartition<uint16_t, D> du16;
      const hn::Half<decltype(du16)> half;
      const auto low = hn::BitCast(half, hn::DemoteTo(df16, a)), high = hn::BitCast(half, hn::DemoteTo(df16, b));
      hn::Stream(hn::Combine(du16, high, low), du16, reinterpret_cast<uint16_t*>(p));
    } else {
      StoreF32(a, d, p);
      StoreF32(b, d, p + hn::Lanes(d));
    }
#endif
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

// True if non-temporal stores of whole vectors are possible here.
HWY_INLINE bool IsAlignedToVector(const void* place) {
  return reinterpret_cast<uintptr_t>(place) % sizeof(hn::Vec<DF32>) == 0;
}

// Prefetches what is `ahead` bytes behind `bytes` bytes, all at once. Spreading prefetches among loads of the same
// lines gained nothing (docs/lab/README.md, "Residual"). Past the end of a tensor this is harmless.
HWY_INLINE void PrefetchBehind(const void* place, size_t bytes, size_t ahead) {
  const auto first = reinterpret_cast<uintptr_t>(place) + ahead;
  for (size_t line = 0; line < bytes; line += 64) hwy::Prefetch(reinterpret_cast<const char*>(first + line));
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// The normalise step of the forward pass, y = fma(fma(x - centre, rstd, offset), gamma, beta), alone or combined with
// the sums of other rows. When combined, the two alternate every few columns. This keeps loads and stores in flight
// together, and hides chains of additions. The order affects no bit. Included once per target.
#pragma once

#include <cstring>

#include "kernels/forward/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// kHasCentre: a centre is subtracted from x. Subtracting 0 changes no bit.
template <bool kHasCentre, class D, class V = hn::Vec<D>>
struct NormaliseVectors {
  V centre, offset, rstd;

  template <class A>
  HWY_INLINE NormaliseVectors(D d, const NormScalars<A>& s)
      : centre(hn::Set(d, s.centre)), offset(hn::Set(d, s.offset)), rstd(hn::Set(d, s.rstd)) {}
  HWY_INLINE NormaliseVectors(V centres, V offsets, V rstds) : centre(centres), offset(offsets), rstd(rstds) {}

  HWY_INLINE V operator()(D d, V x, V gamma, V beta) const {
    return Fma(d, Fma(d, kHasCentre ? hn::Sub(x, centre) : x, rstd, offset), gamma, beta);
  }
  // Normalises as many columns as a pair has. kStream: with non-temporal stores; y must be aligned to a cache line.
  template <bool kStream, class T>
  HWY_INLINE void NormalisePair(D d, const T* x, const PairOf<V>& gamma, const PairOf<V>& beta, T* y) const {
    const auto from = LoadPair(d, x);
    StorePair<kStream>((*this)(d, from.a, gamma.a, beta.a), (*this)(d, from.b, gamma.b, beta.b), d, y);
  }
  // Normalises the first n columns of a vector.
  template <class T, class A>
  HWY_INLINE void NormaliseFirst(D d, const T* x, const A* gamma, const A* beta, size_t n, T* y) const {
    StoreFirst((*this)(d, LoadFirst(d, x, n), LoadFirst(d, gamma, n), LoadFirst(d, beta, n)), d, y, n);
  }
};

// True if one of kMaxGroup rows has a centre other than 0.
template <class A>
HWY_INLINE bool AnyCentre(const A* centres) {
  const hn::CappedTag<A, kMaxGroup> d;
  bool any = false;
  for (size_t r = 0; r < kMaxGroup; r += hn::MaxLanes(d)) {
    any = any || !hn::AllTrue(d, hn::Eq(hn::Load(d, centres + r), hn::Zero(d)));
  }
  return any;
}

// Columns [from, to) of a block, where to - from is a multiple of kNormaliseStep. kStream: with non-temporal stores; y
// must be aligned to a cache line.
inline constexpr size_t kNormaliseStep = 2 * hn::MaxLanes(DF32());

template <bool kHasCentre, bool kStream, class A, class T>
HWY_INLINE void NormaliseColumnsSo(const NormScalars<A>& scalars, const T* x, const Affine<A>& affine, size_t from,
                                   size_t to, T* y) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const NormaliseVectors<kHasCentre, hn::ScalableTag<A>> normalise(d, scalars);
#pragma GCC unroll 1
  for (size_t i = from; i < to; i += 2 * kN) {
    normalise.template NormalisePair<kStream>(d, x + i, LoadPair(d, affine.gamma_at(i)), LoadPair(d, affine.beta_at(i)),
                                              y + i);
  }
}

// Rows without a centre have a loop of their own where that is faster. kHasCentre: rows may have one.
template <bool kHasCentre, class A, class T>
HWY_INLINE void NormaliseColumns(bool stream, const NormScalars<A>& scalars, const T* x, const Affine<A>& affine,
                                 size_t from, size_t to, T* y) {
  if (kHasCentre && (!HWY_NATIVE_FMA || scalars.centre != 0)) {
    stream ? NormaliseColumnsSo<kHasCentre, true>(scalars, x, affine, from, to, y)
           : NormaliseColumnsSo<kHasCentre, false>(scalars, x, affine, from, to, y);
  } else {
    stream ? NormaliseColumnsSo<false, true>(scalars, x, affine, from, to, y)
           : NormaliseColumnsSo<false, false>(scalars, x, affine, from, to, y);
  }
}

// The last columns of an n-column block, fewer than kNormaliseStep, from a multiple of kNormaliseStep on.
template <class A, class T>
HWY_INLINE void NormaliseTail(const NormScalars<A>& scalars, const T* x, const Affine<A>& affine, size_t n, T* y) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const NormaliseVectors<true, hn::ScalableTag<A>> normalise(d, scalars);
  size_t i = n / kNormaliseStep * kNormaliseStep;
  for (; i + kN <= n; i += kN) {
    const A *gamma = affine.gamma_at(i), *beta = affine.beta_at(i);
    StoreArithmetic(normalise(d, LoadArithmetic(d, x + i), hn::LoadU(d, gamma), hn::LoadU(d, beta)), d, y + i);
  }
  if (i != n) normalise.NormaliseFirst(d, x + i, affine.gamma_at(i), affine.beta_at(i), n - i, y + i);
}

// Copies n columns of row i.
template <class T>
HWY_NOINLINE void CopyColumns(const NormaliseRows<T>& normalised, size_t i, size_t from, size_t n) {
  const T* x = normalised.x.at(i) + from;
  T* to = normalised.copy.at(i) + from;
  if (normalised.stream_copy && FillsLines(to, n)) return StreamCopyBytes(x, to, n * sizeof(T));
  std::memcpy(to, x, n * sizeof(T));
}

// Normalises rows from row i on. Not inlined, because several kernels share it.
template <class T>
HWY_NOINLINE void NormaliseRowsFrom(const NormaliseRows<T>& normalised, size_t i) {
  const size_t n = normalised.n, whole = n / kNormaliseStep * kNormaliseStep;
  for (; i < normalised.rows; ++i) {
    if (HWY_UNLIKELY(normalised.copy.first != nullptr)) CopyColumns(normalised, i, 0, n);
    const T* x = normalised.x.at(i);
    T* y = normalised.y.at(i);
    const NormScalars<Arithmetic<T>> scalars = normalised.scalars->of(normalised.first + i);
    NormaliseColumns<true>(normalised.stream && FillsLines(y, n), scalars, x, normalised.affine, 0, whole, y);
    if (whole != n) NormaliseTail(scalars, x, normalised.affine, n, y);
  }
}

template <class T>
void NormaliseRowsOf(const NormaliseRows<T>& normalised) {
  NormaliseRowsFrom(normalised, 0);
}

// True if there are enough registers for a row's sums and a normalise step at once.
inline constexpr bool kNormalisesBesideSums = HWY_NATIVE_FMA && hn::MaxLanes(DF64()) >= 4;

// Normalises n columns of one row and sums as many of another, alternately, a few columns at a time. kColumns, before:
// see LaneSums::AddBeside(). kStream: with non-temporal stores; y must be aligned to a cache line.
template <bool kHasCentre, bool kCentred, bool kStream, size_t kColumns, bool kPart, class A, class T, class Before>
HWY_INLINE void NormaliseBesideSums(const NormScalars<A>& scalars, const T* x, const Affine<A>& affine, size_t n, T* y,
                                    const T* summed_x, const Before& before, LaneSums<T>& sums) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const NormaliseVectors<kHasCentre, decltype(d)> normalise(d, scalars);
  sums.template AddBeside<kColumns, kPart>(summed_x, n, AboutZero<kCentred, A>(), before, [&](size_t c) HWY_ATTR {
    const A *gamma = affine.gamma_at(c), *beta = affine.beta_at(c);
    if (kPart && c + kBesideStep == kColumns) {
      for (size_t i = 0; i < kBesideStep; i += kN) {
        normalise.NormaliseFirst(d, x + c + i, gamma + i, beta + i, LeftFrom(c + i, n), y + c + i);
      }
      return;
    }
    for (size_t i = 0; i < kBesideStep; i += 2 * kN) {
      normalise.template NormalisePair<kStream>(d, x + c + i, LoadPair(d, gamma + i), LoadPair(d, beta + i), y + c + i);
    }
  });
}
// The last columns of two rows: sums those of the one from column `summed` on, normalises the other's from `from` on.
template <bool kCentred, class A, class T>
HWY_INLINE void SumAndNormaliseRest(const T* summed_x, size_t summed, LaneSums<T>& sums, const NormScalars<A>& scalars,
                                    const T* x, const Affine<A>& affine, size_t from, size_t n, T* y) {
  AddAboutZero<T, kCentred, true>(summed_x + summed, n - summed, sums);
  NormaliseTail(scalars, x + from, affine.from(from), n - from, y + from);
}
// All n columns, with a centre, which only layer norm has, or without. Calls before(c, columns) before columns of the
// row that is summed are read. y is aligned first, if that pays.
template <bool kCentred, class A, class T, class Before>
HWY_INLINE void NormaliseRowBesideSums(const NormScalars<A>& scalars, const T* x, const Affine<A>& affine, size_t n,
                                       T* y, const T* summed_x, const Before& before, LaneSums<T>& sums) {
  const size_t head = ColumnsToAligned(y, n), beside = (n - head) / kBesideStep * kBesideStep;
  // Whole vectors, of which some columns follow again, because stores by masks can be slow; not if y replaces x.
  if (!kByMasks<T> && head != 0 && x != y && n >= kNormaliseStep) {
    NormaliseColumns<kCentred>(false, scalars, x, affine, 0, kNormaliseStep, y);
  } else if (head != 0) {
    NormaliseTail(scalars, x, affine, head, y);
  }
  const bool has_centre = kCentred && scalars.centre != 0;
  const Affine<A> rest = affine.from(head);
  has_centre ? NormaliseBesideSums<kCentred, kCentred, false, 0, false>(scalars, x + head, rest, beside, y + head,
                                                                        summed_x, before, sums)
             : NormaliseBesideSums<false, kCentred, false, 0, false>(scalars, x + head, rest, beside, y + head,
                                                                     summed_x, before, sums);
  if (beside == n) return;
  before(beside, n - beside);
  SumAndNormaliseRest<kCentred>(summed_x, beside, sums, scalars, x, affine, head + beside, n, y);
}

// Row i of `normalised` and row i of `summed`, which have equally many columns, in steps. Columns of `summed` are
// prepared before they are summed. `sums` begins when the first are prepared.
template <class T, bool kCentred>
HWY_INLINE void NormaliseAndSumInSteps(const NormaliseRows<T>& normalised, const SumRows<T>& summed, size_t i,
                                       bool stream, LaneSums<T>& sums) {
  const NormScalars<Arithmetic<T>> scalars = normalised.scalars->of(normalised.first + i);
  const T *x = normalised.x.at(i), *summed_x = summed.x.at(i);
  T* y = normalised.y.at(i);
  const auto prepare = [&](size_t c, size_t n) HWY_ATTR {
    PrepareColumns(summed, i, c, n);
    if (c == 0) sums.Clear();
  };
  const size_t n = normalised.n;
  size_t c = 0;
  for (; c + kStep <= n; c += kStep) {
    if (HWY_UNLIKELY(normalised.copy.first != nullptr)) CopyColumns(normalised, i, c, kStep);
    NormaliseColumns<kCentred>(stream, scalars, x, normalised.affine, c, c + kStep, y);
    prepare(c, kStep);
    sums.Add(summed_x, c, c + kStep, AboutZero<kCentred, Arithmetic<T>>());
  }
  if (c == n) return;
  if (HWY_UNLIKELY(normalised.copy.first != nullptr)) CopyColumns(normalised, i, c, n - c);
  NormaliseColumns<kCentred>(stream, scalars, x, normalised.affine, c, n / kNormaliseStep * kNormaliseStep, y);
  NormaliseTail(scalars, x, normalised.affine, n, y);
  prepare(c, n - c);
  AddAboutZero<T, kCentred>(summed_x + c, n - c, sums);
}

template <class T, bool kCentred>
EVENORM_INLINE_LOOP LaneSums<T> NormaliseAndSumRow(const NormaliseRows<T>& normalised, const SumRows<T>& summed,
                                                   size_t i) {
  T* y = normalised.y.at(i);
  const bool stream = normalised.stream && FillsLines(y, summed.n);
  LaneSums<T> sums;
  if (!kNormalisesBesideSums || stream || normalised.copy.first != nullptr) {
    NormaliseAndSumInSteps<T, kCentred>(normalised, summed, i, stream, sums);
    return sums;
  }
  if constexpr (kNormalisesBesideSums) {
    const bool made = summed.terms.r.first != nullptr;
    if (made) PrepareColumns(summed, i, 0, summed.n);
    sums.Clear();
    const size_t ahead = made ? 0 : summed.ahead;
    const T* summed_x = summed.x.at(i);
    const auto prefetch = [=](size_t c, size_t n) HWY_ATTR {
      if (ahead != 0) PrefetchBehind(summed_x + c, n * sizeof(T), ahead);
    };
    const NormScalars<Arithmetic<T>> scalars = normalised.scalars->of(normalised.first + i);
    NormaliseRowBesideSums<kCentred>(scalars, normalised.x.at(i), normalised.affine, summed.n, y, summed_x, prefetch,
                                     sums);
  }
  return sums;
}

// The same for `rows` rows.
template <class T, bool kCentred>
HWY_NOINLINE void NormaliseAndSumRows(const NormaliseRows<T>& normalised, const SumRows<T>& summed, size_t rows) {
  static_assert(kStep % kNormaliseStep == 0 && kStep % kLanes == 0 && kStep % kBesideStep == 0);
  static_assert(kBesideStep % kNormaliseStep == 0);
  for (size_t i = 0; i < rows; ++i) {
    const BlockSums sums = NormaliseAndSumRow<T, kCentred>(normalised, summed, i).Join();
    summed.group->set(summed.first + i, sums.s, 0, sums.q);
  }
}

template <class T, bool kCentred>
void NormaliseAndSum(const NormaliseRows<T>& normalised, const SumRows<T>& summed) {
  NormaliseAndSumRows<T, kCentred>(normalised, summed, normalised.rows);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// The normalise step of the forward pass, y = fma(fma(x - centre, rstd, offset), gamma, beta), alone or combined with
// the sums of other rows. When combined, the two alternate every few columns. This keeps loads and stores in flight
// together, and hides chains of additions. The order affects no bit. Included once per target.
#pragma once

#include <cstring>

#include "kernels/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// kCentred: a centre is subtracted from x. Subtracting 0 changes no bit.
template <bool kCentred, class D, class V = hn::Vec<D>>
struct NormaliseVectors {
  V centre, offset, rstd;

  template <class A>
  HWY_INLINE NormaliseVectors(D d, const NormScalars<A>& s)
      : centre(hn::Set(d, s.centre)), offset(hn::Set(d, s.offset)), rstd(hn::Set(d, s.rstd)) {}
  HWY_INLINE NormaliseVectors(V centres, V offsets, V rstds) : centre(centres), offset(offsets), rstd(rstds) {}

  HWY_INLINE V operator()(D d, V x, V gamma, V beta) const {
    return Fma(d, Fma(d, kCentred ? hn::Sub(x, centre) : x, rstd, offset), gamma, beta);
  }
  // Normalises as many columns as a pair has. kStream: with non-temporal stores; y must be aligned to a whole vector.
  template <bool kStream, class T>
  HWY_INLINE void NormalisePair(D d, const T* x, const PairOf<V>& gamma, const PairOf<V>& beta, T* y) const {
    const auto from = LoadPair(d, x);
    StorePair<kStream>((*this)(d, from.a, gamma.a, beta.a), (*this)(d, from.b, gamma.b, beta.b), d, y);
  }
};

// True if one of the first `rows` rows has a centre other than 0.
template <class A>
HWY_INLINE bool AnyCentre(const NormScalarsOfRows<A>& scalars, size_t rows) {
  const hn::CappedTag<A, kMaxGroup> d;
  bool any = false;
  size_t checked = 0;
  for (; checked + hn::MaxLanes(d) <= rows; checked += hn::MaxLanes(d)) {
    any = any || !hn::AllTrue(d, hn::Eq(hn::Load(d, scalars.centre + checked), hn::Zero(d)));
  }
  for (; checked < rows; ++checked) any = any || scalars.centre[checked] != 0;
  return any;
}

// Columns [from, to) of a block, where to - from is a multiple of kNormaliseStep. kStream: with non-temporal stores; y
// must be aligned to a whole vector.
inline constexpr size_t kNormaliseStep = 2 * hn::MaxLanes(DF32());

template <bool kCentred, bool kStream, class A, class T>
HWY_INLINE void NormaliseColumnsSo(const NormScalars<A>& scalars, const T* x, const Affine<A>& affine, size_t from,
                                   size_t to, T* y) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const NormaliseVectors<kCentred, hn::ScalableTag<A>> normalise(d, scalars);
#pragma GCC unroll 1
  for (size_t i = from; i < to; i += 2 * kN) {
    normalise.template NormalisePair<kStream>(d, x + i, LoadPair(d, affine.gamma_at(i)), LoadPair(d, affine.beta_at(i)),
                                              y + i);
  }
}

// Rows without a centre have a loop of their own where that is faster.
template <class A, class T>
HWY_INLINE void NormaliseColumns(bool stream, const NormScalars<A>& scalars, const T* x, const Affine<A>& affine,
                                 size_t from, size_t to, T* y) {
  const bool centred = !HWY_NATIVE_FMA || scalars.centre != 0;
  if (centred) {
    stream ? NormaliseColumnsSo<true, true>(scalars, x, affine, from, to, y)
           : NormaliseColumnsSo<true, false>(scalars, x, affine, from, to, y);
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
    StoreArithmetic(
        normalise(d, LoadArithmetic(d, x + i), hn::LoadU(d, affine.gamma_at(i)), hn::LoadU(d, affine.beta_at(i))), d,
        y + i);
  }
  if (i == n) return;
  const size_t rest = n - i;
  T x_tail[kN] = {};
  T y_tail[kN];
  A gamma_tail[kN] = {}, beta_tail[kN] = {};
  std::memcpy(x_tail, x + i, rest * sizeof(T));
  std::memcpy(gamma_tail, affine.gamma_at(i), rest * sizeof(A));
  std::memcpy(beta_tail, affine.beta_at(i), rest * sizeof(A));
  StoreArithmetic(normalise(d, LoadArithmetic(d, x_tail), hn::LoadU(d, gamma_tail), hn::LoadU(d, beta_tail)), d,
                  y_tail);
  std::memcpy(y + i, y_tail, rest * sizeof(T));
}

template <class A, class T>
HWY_INLINE void NormaliseWhole(bool stream, const NormScalars<A>& scalars, const T* x, const Affine<A>& affine,
                               size_t n, T* y) {
  NormaliseColumns(stream, scalars, x, affine, 0, n / kNormaliseStep * kNormaliseStep, y);
  NormaliseTail(scalars, x, affine, n, y);
}

// Copies n columns of row i.
template <class T>
HWY_NOINLINE void CopyColumns(const NormaliseRows<T>& current, size_t i, size_t from, size_t n) {
  const T* x = current.x.at(i) + from;
  T* to = current.copy.at(i) + from;
  if (current.stream_copy && IsAlignedToVector(to)) return StreamCopyBytes(x, to, n * sizeof(T));
  std::memcpy(to, x, n * sizeof(T));
}

// Normalises row i from column `from` on.
template <class T>
EVENORM_INLINE_LOOP void NormaliseRow(const NormaliseRows<T>& current, size_t i, size_t from) {
  if (HWY_UNLIKELY(current.copy.first != nullptr)) CopyColumns(current, i, from, current.n - from);
  T* y = current.y.at(i) + from;
  NormaliseWhole(current.stream && IsAlignedToVector(y), current.scalars->of(current.first + i), current.x.at(i) + from,
                 current.affine.from(from), current.n - from, y);
}

template <class T>
void NormaliseRowsOf(const NormaliseRows<T>& current) {
  for (size_t i = 0; i < current.rows; ++i) NormaliseRow(current, i, 0);
}

// True if there are enough registers for a row's sums and a normalise step at once.
inline constexpr bool kNormalisesBesideSums = HWY_NATIVE_FMA && hn::MaxLanes(DF64()) >= 4;

// Normalises n columns of one row and sums as many of another, alternately, a few columns at a time. kColumns, before:
// see LaneSums::AddBeside(). kStream: with non-temporal stores; y must be aligned to a whole vector.
template <bool kHasCentre, bool kCentred, bool kStream, size_t kColumns, class A, class T, class Before>
HWY_INLINE void NormaliseBesideSums(const NormScalars<A>& scalars, const T* x, const Affine<A>& affine, size_t n, T* y,
                                    const T* next_x, const Before& before, LaneSums<T>& sums) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d), kBeside = LaneSums<T>::kBeside;
  static_assert(kBeside % (2 * kN) == 0);
  const NormaliseVectors<kHasCentre, decltype(d)> normalise(d, scalars);
  sums.template AddBeside<kColumns>(next_x, n, AboutZero<kCentred, A>(), before, [&](size_t c) HWY_ATTR {
    const A *gamma = affine.gamma_at(c), *beta = affine.beta_at(c);
    for (size_t i = 0; i < kBeside; i += 2 * kN) {
      const size_t at = c + i;
      normalise.template NormalisePair<kStream>(d, x + at, LoadPair(d, gamma + i), LoadPair(d, beta + i), y + at);
    }
  });
}
// The same in steps, with a centre or without.
template <bool kCentred, class A, class T, class Before>
HWY_INLINE void NormaliseStepsBesideSums(const NormScalars<A>& scalars, const T* x, const Affine<A>& affine, size_t n,
                                         T* y, const T* next_x, const Before& before, LaneSums<T>& sums) {
  constexpr size_t kSteps = LaneSums<T>::kSteps;
  scalars.centre != 0
      ? NormaliseBesideSums<true, kCentred, false, kSteps>(scalars, x, affine, n, y, next_x, before, sums)
      : NormaliseBesideSums<false, kCentred, false, kSteps>(scalars, x, affine, n, y, next_x, before, sums);
}

// The remaining columns of two rows of n columns, from column `from` on: sums of the one, normalises the other.
template <bool kCentred, class A, class T>
HWY_INLINE void SumAndNormaliseRest(const T* next_x, LaneSums<T>& sums, const NormScalars<A>& scalars, const T* x,
                                    const Affine<A>& affine, size_t from, size_t n, T* y) {
  AddAboutZero<T, kCentred>(next_x + from, n - from, sums);
  NormaliseWhole(false, scalars, x + from, affine.from(from), n - from, y + from);
}

// Row i of `current` and row i of `next`, which have equally many columns, in steps. The first `normalised` columns of
// `current` are normalised. Columns of `next` are prepared, and the first `normalised` summed. `sums` begins when the
// first are prepared.
template <class T, bool kCentred>
HWY_INLINE void NormaliseAndSumInSteps(const NormaliseRows<T>& current, const SumRows<T>& next, const StepHooks& hooks,
                                       size_t i, size_t normalised, bool stream, LaneSums<T>& sums) {
  const auto prepare = [&](size_t from, size_t count) HWY_ATTR {
    PrepareColumns(next, i, from, count);
    if (HWY_UNLIKELY(hooks.before_sum != nullptr)) hooks.before_sum(hooks.context, from, count);
  };
  const NormScalars<Arithmetic<T>> scalars = current.scalars->of(current.first + i);
  for (size_t c = 0; c < normalised; c += kStep) {
    if (HWY_UNLIKELY(hooks.before_normalise != nullptr)) hooks.before_normalise(hooks.context, c, kStep);
    if (HWY_UNLIKELY(current.copy.first != nullptr)) CopyColumns(current, i, c, kStep);
    NormaliseColumns(stream, scalars, current.x.at(i), current.affine, c, c + kStep, current.y.at(i));
    prepare(c, kStep);
    if (c == 0) sums.Clear();
    sums.Add(next.x.at(i), c, c + kStep, AboutZero<kCentred, Arithmetic<T>>());
  }
  prepare(normalised, next.n - normalised);
  if (normalised == 0) sums.Clear();
}

template <class T, bool kCentred>
EVENORM_INLINE_LOOP LaneSums<T> NormaliseAndSumRow(const NormaliseRows<T>& current, const SumRows<T>& next,
                                                   const StepHooks& hooks, size_t i, size_t normalised) {
  using A = Arithmetic<T>;
  const T* next_x = next.x.at(i);
  T* y = current.y.at(i);
  const bool stream = current.stream && IsAlignedToVector(y);
  LaneSums<T> sums;
  if constexpr (kNormalisesBesideSums) {
    const bool plain =
        !stream && hooks.before_normalise == nullptr && hooks.before_sum == nullptr && current.copy.first == nullptr;
    if (plain) {
      const bool made = next.terms.r.first != nullptr;
      if (made) PrepareColumns(next, i, 0, next.n);
      sums.Clear();
      const size_t ahead = made ? 0 : next.ahead;
      const NormScalars<A> scalars = current.scalars->of(current.first + i);
      const T* x = current.x.at(i);
      const auto prefetch = [&](size_t c) HWY_ATTR {
        if (ahead != 0) PrefetchBehind(next_x + c, kStep * sizeof(T), ahead);
      };
      NormaliseStepsBesideSums<kCentred>(scalars, x, current.affine, normalised, y, next_x, prefetch, sums);
      if (!made) PrepareColumns(next, i, normalised, next.n - normalised);
    } else {
      NormaliseAndSumInSteps<T, kCentred>(current, next, hooks, i, normalised, stream, sums);
    }
  } else {
    NormaliseAndSumInSteps<T, kCentred>(current, next, hooks, i, normalised, stream, sums);
  }
  AddAboutZero<T, kCentred>(next_x + normalised, next.n - normalised, sums);
  return sums;
}

// The same for `rows` rows, and the rest of their normalise step; if hooks are to see the rest, only up to
// `normalised`.
template <class T, bool kCentred>
HWY_NOINLINE void NormaliseAndSumRows(const NormaliseRows<T>& current, const SumRows<T>& next, const StepHooks& hooks,
                                      size_t rows, size_t normalised) {
  LanesOfRows<T, kCentred> lanes;
  for (size_t i = 0; i < rows; ++i) {
    lanes.Add(i, rows, NormaliseAndSumRow<T, kCentred>(current, next, hooks, i, normalised).Fold(), *next.group,
              next.first);
    if (hooks.before_normalise == nullptr && normalised != current.n) NormaliseRow(current, i, normalised);
  }
}

template <class T, bool kCentred>
size_t NormaliseAndSum(const NormaliseRows<T>& current, const SumRows<T>& next, const StepHooks& hooks) {
  static_assert(kBlock % kStep == 0 && kStep % kNormaliseStep == 0 && kStep % kLanes == 0 && kStep % kBesideStep == 0);
  const size_t normalised = current.n / kStep * kStep;
  NormaliseAndSumRows<T, kCentred>(current, next, hooks, current.rows, normalised);
  return hooks.before_normalise != nullptr ? normalised : current.n;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

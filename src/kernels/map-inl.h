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
struct MapVectors {
  V centre, offset, rstd;

  template <class A>
  HWY_INLINE MapVectors(D d, const MapScalars<A>& s)
      : centre(hn::Set(d, s.centre)), offset(hn::Set(d, s.offset)), rstd(hn::Set(d, s.rstd)) {}
  HWY_INLINE MapVectors(V centres, V offsets, V rstds) : centre(centres), offset(offsets), rstd(rstds) {}

  HWY_INLINE V operator()(D d, V x, V gamma, V beta) const {
    return Fma(d, Fma(d, kCentred ? hn::Sub(x, centre) : x, rstd, offset), gamma, beta);
  }
  // Normalises as many columns as a pair has. kStream: with non-temporal stores; y must be aligned to a whole vector.
  template <bool kStream, class T>
  HWY_INLINE void MapPair(D d, const T* x, const PairOf<V>& gamma, const PairOf<V>& beta, T* y) const {
    const auto from = LoadPair(d, x);
    StorePair<kStream>((*this)(d, from.a, gamma.a, beta.a), (*this)(d, from.b, gamma.b, beta.b), d, y);
  }
};

// True if one of the first `rows` rows has a centre other than 0.
template <class A>
HWY_INLINE bool AnyCentre(const MapScalarsOfRows<A>& scalars, size_t rows) {
  const hn::CappedTag<A, kMaxGroup> d;
  bool any = false;
  size_t checked = 0;
  for (; checked + hn::MaxLanes(d) <= rows; checked += hn::MaxLanes(d)) {
    any = any || !hn::AllTrue(d, hn::Eq(hn::Load(d, scalars.centre + checked), hn::Zero(d)));
  }
  for (; checked < rows; ++checked) any = any || scalars.centre[checked] != 0;
  return any;
}

// Columns [from, to) of a block, where to - from is a multiple of kMapStep. kStream: with non-temporal stores; y must
// be aligned to a whole vector.
inline constexpr size_t kMapStep = 2 * hn::MaxLanes(DF32());

template <bool kCentred, bool kStream, class A, class T>
HWY_INLINE void MapColumnsSo(const MapScalars<A>& scalars, const T* x, const A* gamma, const A* beta, size_t from,
                             size_t to, T* y) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const MapVectors<kCentred, hn::ScalableTag<A>> map(d, scalars);
#pragma GCC unroll 1
  for (size_t i = from; i < to; i += 2 * kN) {
    map.template MapPair<kStream>(d, x + i, LoadPair(d, gamma + i), LoadPair(d, beta + i), y + i);
  }
}

// Rows without a centre have a loop of their own where that is faster.
template <class A, class T>
HWY_INLINE void MapColumns(bool stream, const MapScalars<A>& scalars, const T* x, const A* gamma, const A* beta,
                           size_t from, size_t to, T* y) {
  const bool centred = !HWY_NATIVE_FMA || scalars.centre != 0;
  if (centred) {
    stream ? MapColumnsSo<true, true>(scalars, x, gamma, beta, from, to, y)
           : MapColumnsSo<true, false>(scalars, x, gamma, beta, from, to, y);
  } else {
    stream ? MapColumnsSo<false, true>(scalars, x, gamma, beta, from, to, y)
           : MapColumnsSo<false, false>(scalars, x, gamma, beta, from, to, y);
  }
}

// The last columns of an n-column block, fewer than kMapStep, from a multiple of kMapStep on.
template <class A, class T>
HWY_INLINE void MapTail(const MapScalars<A>& scalars, const T* x, const A* gamma, const A* beta, size_t n, T* y) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const MapVectors<true, hn::ScalableTag<A>> map(d, scalars);
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
  MapColumns(stream, scalars, x, gamma, beta, 0, n / kMapStep * kMapStep, y);
  MapTail(scalars, x, gamma, beta, n, y);
}

// Copies n columns of row i.
template <class T>
HWY_NOINLINE void CopyColumns(const MapRows<T>& map, size_t i, size_t from, size_t n) {
  const T* x = map.x.at(i) + from;
  T* to = map.copy.at(i) + from;
  if (map.stream_copy && IsAlignedToVector(to)) return StreamCopyBytes(x, to, n * sizeof(T));
  std::memcpy(to, x, n * sizeof(T));
}

// Normalises row i from column `from` on.
template <class T>
EVENORM_INLINE_LOOP void MapRow(const MapRows<T>& map, size_t i, size_t from) {
  if (HWY_UNLIKELY(map.copy.first != nullptr)) CopyColumns(map, i, from, map.n - from);
  T* y = map.y.at(i) + from;
  MapWhole(map.stream && IsAlignedToVector(y), map.scalars->of(map.first + i), map.x.at(i) + from, map.gamma + from,
           map.beta + from, map.n - from, y);
}

template <class T>
void MapRowsOf(const MapRows<T>& map) {
  for (size_t i = 0; i < map.rows; ++i) MapRow(map, i, 0);
}

// True if there are enough registers for a row's sums and a normalise step at once.
inline constexpr bool kMapsBesideSums = HWY_NATIVE_FMA && hn::MaxLanes(DF64()) >= 4;

// Normalises n columns of one row and sums as many of another, alternately, a few columns at a time. kColumns, before:
// see LaneSums::AddBeside(). kStream: with non-temporal stores; y must be aligned to a whole vector.
template <bool kCentredMap, bool kCentred, bool kStream, size_t kColumns, class A, class T, class Before>
HWY_INLINE void MapBesideSums(const MapScalars<A>& scalars, const T* x, const A* gamma, const A* beta, size_t n, T* y,
                              const T* next_x, const Before& before, SumsAboutZero<T, kCentred>& sums) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d), kBeside = SumsAboutZero<T, kCentred>::kBeside;
  static_assert(kBeside % (2 * kN) == 0);
  const MapVectors<kCentredMap, decltype(d)> map(d, scalars);
  sums.template AddBeside<kColumns>(next_x, n, AboutZero<kCentred, A>(), before, [&](size_t c) HWY_ATTR {
    for (size_t i = 0; i < kBeside; i += 2 * kN) {
      const size_t at = c + i;
      map.template MapPair<kStream>(d, x + at, LoadPair(d, gamma + at), LoadPair(d, beta + at), y + at);
    }
  });
}
// The same in steps, with a centre or without.
template <bool kCentred, class A, class T, class Before>
HWY_INLINE void MapStepsBesideSums(const MapScalars<A>& scalars, const T* x, const A* gamma, const A* beta, size_t n,
                                   T* y, const T* next_x, const Before& before, SumsAboutZero<T, kCentred>& sums) {
  constexpr size_t kSteps = SumsAboutZero<T, kCentred>::kSteps;
  scalars.centre != 0
      ? MapBesideSums<true, kCentred, false, kSteps>(scalars, x, gamma, beta, n, y, next_x, before, sums)
      : MapBesideSums<false, kCentred, false, kSteps>(scalars, x, gamma, beta, n, y, next_x, before, sums);
}

// The remaining columns of two rows of n columns, from column `from` on: sums of the one, normalises the other.
template <bool kCentred, class A, class T>
HWY_INLINE void SumAndMapRest(const T* next_x, SumsAboutZero<T, kCentred>& sums, const MapScalars<A>& scalars,
                              const T* x, const A* gamma, const A* beta, size_t from, size_t n, T* y) {
  AddAboutZero<T, kCentred>(next_x + from, n - from, sums);
  MapWhole(false, scalars, x + from, gamma + from, beta + from, n - from, y + from);
}

// Row i of `map` and row i of `next`, which have equally many columns, in steps. The first `mapped` columns of `map`
// are normalised. Columns of `next` are prepared, and the first `mapped` summed. `sums` begins when the first are
// prepared.
template <class T, bool kCentred>
HWY_INLINE void MapAndSumInSteps(const MapRows<T>& map, const SumRows<T>& next, const StepHooks& hooks, size_t i,
                                 size_t mapped, bool stream, SumsAboutZero<T, kCentred>& sums) {
  const auto prepare = [&](size_t from, size_t count) HWY_ATTR {
    PrepareColumns(next, i, from, count);
    if (HWY_UNLIKELY(hooks.before_sum != nullptr)) hooks.before_sum(hooks.context, from, count);
  };
  const MapScalars<Arithmetic<T>> scalars = map.scalars->of(map.first + i);
  for (size_t c = 0; c < mapped; c += kStep) {
    if (HWY_UNLIKELY(hooks.before_map != nullptr)) hooks.before_map(hooks.context, c, kStep);
    if (HWY_UNLIKELY(map.copy.first != nullptr)) CopyColumns(map, i, c, kStep);
    MapColumns(stream, scalars, map.x.at(i), map.gamma, map.beta, c, c + kStep, map.y.at(i));
    prepare(c, kStep);
    if (c == 0) sums.Begin(next.x.at(i), next.n);
    sums.Add(next.x.at(i), c, c + kStep, AboutZero<kCentred, Arithmetic<T>>());
  }
  prepare(mapped, next.n - mapped);
  if (mapped == 0) sums.Begin(next.x.at(i), next.n);
}

template <class T, bool kCentred>
EVENORM_INLINE_LOOP SumsAboutZero<T, kCentred> MapAndSumRow(const MapRows<T>& map, const SumRows<T>& next,
                                                            const StepHooks& hooks, size_t i, size_t mapped) {
  using A = Arithmetic<T>;
  const T* next_x = next.x.at(i);
  T* y = map.y.at(i);
  const bool stream = map.stream && IsAlignedToVector(y);
  SumsAboutZero<T, kCentred> sums;
  if constexpr (kMapsBesideSums) {
    const bool plain =
        !stream && hooks.before_map == nullptr && hooks.before_sum == nullptr && map.copy.first == nullptr;
    if (plain) {
      const bool made = next.terms.r.first != nullptr;
      if (made) PrepareColumns(next, i, 0, next.n);
      sums.Begin(next_x, next.n);
      const size_t ahead = made ? 0 : next.ahead;
      const MapScalars<A> scalars = map.scalars->of(map.first + i);
      const T* x = map.x.at(i);
      const auto fetch = [&](size_t c) HWY_ATTR {
        if (ahead != 0) FetchBehind(next_x + c, kStep * sizeof(T), ahead);
      };
      MapStepsBesideSums<kCentred>(scalars, x, map.gamma, map.beta, mapped, y, next_x, fetch, sums);
      if (!made) PrepareColumns(next, i, mapped, next.n - mapped);
    } else {
      MapAndSumInSteps<T, kCentred>(map, next, hooks, i, mapped, stream, sums);
    }
  } else {
    MapAndSumInSteps<T, kCentred>(map, next, hooks, i, mapped, stream, sums);
  }
  AddAboutZero<T, kCentred>(next_x + mapped, next.n - mapped, sums);
  return sums;
}

// The same for `rows` rows, and the rest of their normalise step; if hooks are to see the rest, only up to `mapped`.
template <class T, bool kCentred>
HWY_NOINLINE void MapAndSumRows(const MapRows<T>& map, const SumRows<T>& next, const StepHooks& hooks, size_t rows,
                                size_t mapped) {
  const auto rest = [&](size_t i) HWY_ATTR {
    if (hooks.before_map == nullptr && mapped != map.n) MapRow(map, i, mapped);
  };
  size_t i = 0;
  constexpr size_t kN = hn::MaxLanes(DF64());
  LanesOfRows<SumsAboutZero<T, kCentred>, kCentred> lanes;
  for (; i + kN <= rows; i += kN) {
    for (size_t r = 0; r < kN; ++r) {
      lanes.Set(r, MapAndSumRow<T, kCentred>(map, next, hooks, i + r, mapped).Fold());
      rest(i + r);
    }
    lanes.Join(kN, *next.group, next.first + i);
  }
  for (; i < rows; ++i) {
    const BlockSums sums = MapAndSumRow<T, kCentred>(map, next, hooks, i, mapped).Join();
    next.group->set(next.first + i, sums.s, sums.q);
    rest(i);
  }
}

template <class T, bool kCentred>
size_t MapAndSum(const MapRows<T>& map, const SumRows<T>& next, const StepHooks& hooks) {
  static_assert(kBlock % kStep == 0 && kStep % kMapStep == 0 && kStep % kLanes == 0 && kStep % kBesideStep == 0);
  const size_t mapped = map.n / kStep * kStep;
  MapAndSumRows<T, kCentred>(map, next, hooks, map.rows, mapped);
  return hooks.before_map != nullptr ? mapped : map.n;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

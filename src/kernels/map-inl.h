// The map of the forward pass, y = fma(((x - mean_hi) - mean_lo) * rstd, gamma, beta), alone and over the sums of other
// rows: there by steps of a few columns in turn, so that loads and stores stay in flight together, and chains of
// additions hide behind the map. That order affects no bit. Included once per target.
#pragma once

#include <cstring>

#include "kernels/sum-inl.h"

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

// n columns of row i, to its copy.
template <class T>
HWY_NOINLINE void CopyColumns(const MapRows<T>& map, size_t i, size_t from, size_t n) {
  const T* x = map.x.at(i) + from;
  T* to = map.copy.at(i) + from;
  if (map.stream_copy && IsAlignedToVector(to)) return StreamCopyBytes(x, to, n * sizeof(T));
  std::memcpy(to, x, n * sizeof(T));
}

// Row i, from column `from` on.
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

// Row i of `map` and row i of `next`, of as many columns.
template <class T, bool kCentred>
EVENORM_INLINE_LOOP void MapAndSumRow(const MapRows<T>& map, const SumRows<T>& next, const StepHooks& hooks, size_t i,
                                      size_t mapped) {
  using A = Arithmetic<T>;
  const AboutZero<kCentred, A> about_zero;
  const MapScalars<A> scalars = map.scalars->of(map.first + i);
  const T* x = map.x.at(i);
  const T* next_x = next.x.at(i);
  T* y = map.y.at(i);
  const size_t n = next.n;
  const bool stream = map.stream && IsAlignedToVector(y);
  const auto prepare = [&](size_t from, size_t count) HWY_ATTR {
    PrepareColumns(next, i, from, count);
    if (HWY_UNLIKELY(hooks.before_sum != nullptr)) hooks.before_sum(hooks.context, from, count);
  };
  LaneSums<A, T> sums;
  sums.Clear();
  for (size_t c = 0; c < mapped; c += kStep) {
    if (HWY_UNLIKELY(hooks.before_map != nullptr)) hooks.before_map(hooks.context, c, kStep);
    if (HWY_UNLIKELY(map.copy.first != nullptr)) CopyColumns(map, i, c, kStep);
    if (stream) {
      MapColumns<true>(scalars, x, map.gamma, map.beta, c, c + kStep, y);
    } else {
      MapColumns<false>(scalars, x, map.gamma, map.beta, c, c + kStep, y);
    }
    prepare(c, kStep);
    sums.Add(next_x, c, c + kStep, about_zero);
  }
  prepare(mapped, n - mapped);
  sums.Add(next_x, mapped, n / kLanes * kLanes, about_zero);
  sums.AddTail(next_x, n, about_zero);
  const BlockSums joined = sums.Join();
  next.group->set(next.first + i, joined.s, joined.q);
}

template <class T, bool kCentred>
size_t MapAndSum(const MapRows<T>& map, const SumRows<T>& next, const StepHooks& hooks) {
  static_assert(kBlock % kStep == 0 && kStep % kMapStep == 0 && kStep % kLanes == 0);
  const size_t mapped = map.n / kStep * kStep;
  for (size_t i = 0; i < map.rows; ++i) {
    MapAndSumRow<T, kCentred>(map, next, hooks, i, mapped);
    if (hooks.before_map == nullptr) MapRow(map, i, mapped);
  }
  return hooks.before_map != nullptr ? mapped : map.n;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

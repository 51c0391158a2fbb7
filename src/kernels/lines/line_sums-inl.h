// The sums of lines (plan/lines.hpp): of x across memory, and of gradients. Across memory, a vector holds one position
// of several lines. Included once per target.
#pragma once

#include "kernels/backward/gradient_dx-inl.h"
#include "kernels/backward/gradient_sums-inl.h"
#include "kernels/forward/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Whether lines stay in L1, so that each can be finished before the next.
template <class T>
HWY_INLINE bool StayNear(const Lines<T>& c) {
  return c.count * c.positions * sizeof(T) <= kNearBytes;
}

// Folds kCount lanes of each line, which has two sums: those of a lane are in two rows of kLinesAtOnce numbers.
template <size_t kCount>
HWY_NOINLINE void FoldLanesOfLines(size_t lines, double* lanes) {
  const DF64 d;
  for (double* sum : {lanes, lanes + kLinesAtOnce}) {
    for (size_t line = 0; line < lines; line += hn::Lanes(d)) {
      V64 of_lane[kCount];
      for (size_t l = 0; l < kCount; ++l) of_lane[l] = hn::LoadU(d, sum + 2 * l * kLinesAtOnce + line);
      hn::StoreU(FoldVectors<kCount, 1>(of_lane), d, sum + line);
    }
  }
}

// Adds positions [from, end) to the lanes of all lines. The first ones begin them.
template <bool kCentred, class T>
HWY_NOINLINE void AddPositions(const Lines<T>& c, size_t from, size_t end, size_t ahead, double* lane) {
  const DF64 d;
  const AboutZero<kCentred, float> accumulate;
  constexpr size_t kN = hn::MaxLanes(d);
  static_assert(kOfCacheLine<float> % (2 * kN) == 0);
  const EvenRows<const T> x = c.x;
  const size_t lines = c.count;
  for (size_t l = from; l < from + kLanes; ++l, lane += 2 * kLinesAtOnce) {
    for (size_t i = l; ahead != 0 && i < end; i += kLanes) PrefetchBehind(x.at(i), lines * sizeof(T), ahead);
    const T* first = x.at(l);
    for (size_t v = 0; v < lines; v += 2 * kN) {
      V64 s[2], q[2];
      for (size_t k = 0; k < 2; ++k) {
        const double* before = lane + v + k * kN;
        s[k] = from == 0 ? hn::Zero(d) : hn::LoadU(d, before);
        q[k] = from == 0 ? hn::Zero(d) : hn::LoadU(d, before + kLinesAtOnce);
      }
      const T* at = first + v;
#pragma GCC unroll 2
      for (size_t i = l; i < end; i += kLanes, at = x.after(at, kLanes)) {
        for (size_t k = 0; k < 2; ++k) accumulate(LoadF64(d, at + k * kN), 0, 0, s[k], q[k]);
      }
      for (size_t k = 0; k < 2; ++k) {
        hn::StoreU(s[k], d, lane + v + k * kN);
        hn::StoreU(q[k], d, lane + kLinesAtOnce + v + k * kN);
      }
    }
  }
}

template <class T, bool kCentred>
void SumLinesAcross(const Lines<T>& c, double* lanes) {
  if constexpr (!std::is_same_v<T, double>) {
    const bool near = StayNear(c);
    const size_t together = near ? c.positions : kLanes * kPositionsOfLane;
    for (size_t i = 0; i < c.positions; i += together) {
      AddPositions<kCentred>(c, i, HWY_MIN(i + together, c.positions), near ? 0 : c.ahead, lanes);
    }
    FoldLanesOfLines<kLanes>(c.count, lanes);
  }
}

// Adds kCount * kLanes positions (at most a chain), from `position` on, to wide lane l of each line: dy to lanes[line],
// its product kLinesAtOnce numbers further. The last kLanes have `left` positions; those they lack count as 0.
template <size_t kCount, class T>
HWY_INLINE void AddChainOfLane(const Lines<T>& c, size_t position, size_t l, size_t left, double* lanes) {
  using V = hn::Vec<DF32>;
  const DF32 d;
  HWY_ALIGN static constexpr T kZeros[kLinesAtOnce] = {};
  const float* centres = c.scalars[OfDx::centre];
  const T *x_at[2 * kCount], *dy_at[2 * kCount];
  for (size_t i = 0; i < 2 * kCount; ++i) {
    const bool lacks = i / 2 + 1 == kCount && i % 2 * kWideLanes + l >= left;
    x_at[i] = lacks ? kZeros : c.x.at(position + i * kWideLanes + l);
    dy_at[i] = lacks ? kZeros : c.dy.at(position + i * kWideLanes + l);
  }
  const auto add = [&](V sum, double* to) HWY_ATTR {
    if (position != 0) return AddToColumns(sum, to);
    ForEachF64(sum, [&](V64 w, size_t at) HWY_ATTR { hn::StoreU(w, DF64(), to + at); });
  };
#pragma GCC unroll 1
  for (size_t v = 0, lines = c.count; v < lines; v += hn::Lanes(d)) {
    const V centre = hn::LoadU(d, centres + v);
    SliceSums<V> halves[2];
    HWY_UNROLL(8)
    for (size_t i = 0; i < 2 * kCount; ++i) {
      halves[i % 2].AddSlice(i / 2, LoadArithmetic(d, dy_at[i] + v), hn::Sub(centre, LoadArithmetic(d, x_at[i] + v)));
    }
    add(hn::Add(halves[0].g, halves[1].g), lanes + v);
    add(hn::Add(halves[0].Products(kCount), halves[1].Products(kCount)), lanes + kLinesAtOnce + v);
  }
}
template <size_t kCount, class T>
HWY_NOINLINE void AddChain(const Lines<T>& c, size_t position, size_t left, double* lanes) {
  for (size_t i = position; c.ahead != 0 && i < position + kCount * kLanes; ++i) {
    PrefetchBehind(c.x.at(i), c.count * sizeof(T), c.ahead);
    PrefetchBehind(c.dy.at(i), c.count * sizeof(T), c.ahead);
  }
  for (size_t l = 0; l < kWideLanes; ++l) AddChainOfLane<kCount>(c, position, l, left, lanes + 2 * l * kLinesAtOnce);
}

template <class T>
HWY_INLINE void SumGradientsAcross(const Lines<T>& c, double* lanes) {
  constexpr size_t kChain = kChainSlices * kLanes;
  constexpr decltype(&AddChain<1, T>) kAdd[kChainSlices] = {AddChain<1, T>, AddChain<2, T>, AddChain<3, T>,
                                                            AddChain<4, T>};
  for (size_t done = 0; done < c.positions; done += kChain) {
    const size_t n = HWY_MIN(kChain, c.positions - done), whole = (n - 1) / kLanes;
    kAdd[whole](c, done, n - whole * kLanes, lanes);
  }
  FoldLanesOfLines<kWideLanes>(c.count, lanes);
}

template <class T>
HWY_INLINE void SumGradientsAlong(const Lines<T>& c, double* sums) {
  const DF64 d;
  constexpr size_t kN = hn::MaxLanes(d), kVectors = kWideLanes / kN;
  for (size_t i = 0; i < c.count; i += kN) {
    V64 g[kN], gd[kN];
    for (size_t r = 0; r < kN; ++r) {
      g[r] = gd[r] = hn::Zero(d);
      const size_t line = i + r;
      if (line >= c.count) continue;
      const GradientPiece<T> row{c.x.at(line), c.dy.at(line), c.scalars[OfDx::gamma], c.positions, c.ahead};
      const auto lanes = RowLanes<false>(row, c.scalars[OfDx::centre][line]);
      g[r] = FoldVectors<kVectors, 1>(lanes.g);
      gd[r] = FoldVectors<kVectors, 1>(lanes.gd);
    }
    hn::StoreU(JoinFoldedRows<false>(g), d, sums + i);
    hn::StoreU(JoinFoldedRows<false>(gd), d, sums + kLinesAtOnce + i);
  }
}

template <class T>
void SumGradientsOfLines(const Lines<T>& c, double* lanes) {
  if constexpr (!std::is_same_v<T, double>) c.across ? SumGradientsAcross(c, lanes) : SumGradientsAlong(c, lanes);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

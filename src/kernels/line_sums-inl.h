// The sums of lines, the runs of columns that have one gamma and beta each: of x across vectors, if neighbouring lines
// are neighbours in memory, and of gradients. Included once per target.
#pragma once

#include "kernels/gradient_dx-inl.h"
#include "kernels/gradient_sums-inl.h"
#include "kernels/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Whether lines stay in L1, so that each can be finished before the next.
template <class T>
HWY_INLINE bool StayNear(const Lines<T>& c) {
  return c.lines * c.positions * sizeof(T) <= kNearBytes;
}

// Adds positions [from, end) to the lanes of all lines. The first ones begin them.
template <bool kCentred, class T>
HWY_NOINLINE void AddPositions(const Lines<T>& c, size_t from, size_t end, size_t ahead, double* lane) {
  const DF64 d;
  const AboutZero<kCentred, float> accumulate;
  constexpr size_t kN = hn::MaxLanes(d);
  static_assert(kOfCacheLine<float> % (2 * kN) == 0);
  const EvenRows<const T> x = c.x;
  const size_t lines = c.lines;
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
    const DF64 d;
    const bool near = StayNear(c);
    const size_t together = near ? c.positions : kLanes * kPositionsOfLane;
    for (size_t i = 0; i < c.positions; i += together) {
      AddPositions<kCentred>(c, i, HWY_MIN(i + together, c.positions), near ? 0 : c.ahead, lanes);
    }
    for (size_t v = 0; v < c.lines; v += hn::Lanes(d)) {
      V64 s[kLanes], q[kLanes];
      for (size_t l = 0; l < kLanes; ++l) {
        s[l] = hn::LoadU(d, lanes + 2 * l * kLinesAtOnce + v);
        q[l] = hn::LoadU(d, lanes + (2 * l + 1) * kLinesAtOnce + v);
      }
      hn::StoreU(FoldVectors<kLanes, 1>(s), d, lanes + v);
      hn::StoreU(FoldVectors<kLanes, 1>(q), d, lanes + kLinesAtOnce + v);
    }
  }
}

// Adds kCount lines of lanes (at most a chain), from `position` on, to wide lane l of each line: dy to lanes[line], its
// product kLinesAtOnce numbers further. The last line of lanes has `left` positions; those it lacks count as 0.
template <size_t kCount, bool kFirst, class T>
HWY_INLINE void AddChainOfLane(const Lines<T>& c, size_t position, size_t l, size_t left, double* lanes) {
  using V = hn::Vec<DF32>;
  const DF32 d;
  HWY_ALIGN static constexpr T kZeros[kLinesAtOnce] = {};
  const float* centres = c.scalars[0];
  const T *x_at[2 * kCount], *dy_at[2 * kCount];
  for (size_t i = 0; i < 2 * kCount; ++i) {
    const bool lacks = i / 2 + 1 == kCount && i % 2 * kWideLanes + l >= left;
    x_at[i] = lacks ? kZeros : c.x.at(position + i * kWideLanes + l);
    dy_at[i] = lacks ? kZeros : c.dy.at(position + i * kWideLanes + l);
  }
  const auto add = [&](V sum, size_t v) HWY_ATTR {
    if constexpr (kFirst) {
      ForEachF64(sum, [&](V64 w, size_t at) HWY_ATTR { hn::StoreU(w, DF64(), lanes + v + at); });
    } else {
      AddToColumns(sum, lanes + v);
    }
  };
#pragma GCC unroll 1
  for (size_t v = 0, lines = c.lines; v < lines; v += hn::Lanes(d)) {
    const V centre = hn::LoadU(d, centres + v);
    LineSums<V> halves[2];
    HWY_UNROLL(8)
    for (size_t i = 0; i < 2 * kCount; ++i) {
      halves[i % 2].AddLine(i / 2, LoadArithmetic(d, dy_at[i] + v), hn::Sub(centre, LoadArithmetic(d, x_at[i] + v)));
    }
    add(hn::Add(halves[0].g, halves[1].g), v);
    add(hn::Add(halves[0].Products(kCount), halves[1].Products(kCount)), kLinesAtOnce + v);
  }
}
template <size_t kCount, class T>
HWY_NOINLINE void AddChain(const Lines<T>& c, size_t position, size_t left, double* lanes) {
  for (size_t i = position; c.ahead != 0 && i < position + kCount * kLanes; ++i) {
    PrefetchBehind(c.x.at(i), c.lines * sizeof(T), c.ahead);
    PrefetchBehind(c.dy.at(i), c.lines * sizeof(T), c.ahead);
  }
  for (size_t l = 0; l < kWideLanes; ++l, lanes += 2 * kLinesAtOnce) {
    position == 0 ? AddChainOfLane<kCount, true>(c, position, l, left, lanes)
                  : AddChainOfLane<kCount, false>(c, position, l, left, lanes);
  }
}

template <class T>
void SumGradientsAcross(const Lines<T>& c, double* lanes) {
  if constexpr (!std::is_same_v<T, double>) {
    constexpr size_t kChain = kChainLines * kLanes, kNumbers = 2 * kLinesAtOnce;
    constexpr decltype(&AddChain<1, T>) kAdd[kChainLines] = {AddChain<1, T>, AddChain<2, T>, AddChain<3, T>,
                                                             AddChain<4, T>};
    for (size_t done = 0; done < c.positions; done += kChain) {
      const size_t n = HWY_MIN(kChain, c.positions - done), whole = (n - 1) / kLanes;
      kAdd[whole](c, done, n - whole * kLanes, lanes);
    }
    const DF64 d;
    for (size_t half = kWideLanes / 2; half != 0; half /= 2) {
      for (size_t i = 0; i < half * kNumbers; i += hn::Lanes(d)) {
        hn::StoreU(hn::Add(hn::LoadU(d, lanes + i), hn::LoadU(d, lanes + half * kNumbers + i)), d, lanes + i);
      }
    }
  }
}

// The sums of dy of up to kMaxGroup lines go to `sums`, their products kLinesAtOnce numbers further. gamma is 1 for all
// positions.
template <class T>
void SumGradientsAlong(const Lines<T>& c, double* sums) {
  if constexpr (!std::is_same_v<T, double>) {
    constexpr size_t kN = hn::MaxLanes(DF64()), kVectors = kWideLanes / kN;
    for (size_t i = 0; i < c.lines; i += kN) {
      V64 g[kN], gd[kN];
      for (size_t r = 0; r < kN; ++r) {
        const size_t line = i + r;
        if (line >= c.lines) {
          g[r] = gd[r] = hn::Zero(DF64());
          continue;
        }
        const auto lanes =
            RowLanes(c.x.at(line), c.dy.at(line), c.scalars[4], c.scalars[0][line], c.positions, c.ahead);
        g[r] = FoldVectors<kVectors, 1>(lanes.g);
        gd[r] = FoldVectors<kVectors, 1>(lanes.gd);
      }
      hn::StoreU(JoinFoldedRows<false>(g), DF64(), sums + i);
      hn::StoreU(JoinFoldedRows<false>(gd), DF64(), sums + kLinesAtOnce + i);
    }
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

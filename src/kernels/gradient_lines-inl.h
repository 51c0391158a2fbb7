// Gradients of lines, the runs of columns that have one gamma each: their sums of dy and of dy (centre - x), and dx. If
// neighbouring lines are neighbours in memory, a vector holds one position of several lines. Included once per target.
#pragma once

#include "kernels/gradient_dx-inl.h"
#include "kernels/gradient_sums-inl.h"
#include "kernels/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// --- across vectors

// Adds kCount lines of lanes (at most a chain), from x and dy on, to wide lane l of each line: dy to lanes[line], its
// product kLinesAtOnce numbers further. The last line of lanes has `left` positions; those it lacks count as 0.
template <size_t kCount, bool kFirst, class T>
HWY_INLINE void AddChainOfLane(const GradientLines<T>& c, const T* x, const T* dy, size_t l, size_t left,
                               double* lanes) {
  using V = hn::Vec<DF32>;
  const DF32 d;
  HWY_ALIGN static constexpr T kZeros[kLinesAtOnce] = {};
  const size_t lines = c.lines;
  const T *x_at[2 * kCount], *dy_at[2 * kCount];
  for (size_t i = 0; i < 2 * kCount; ++i) {
    const bool lacks = i / 2 + 1 == kCount && i % 2 * kWideLanes + l >= left;
    x_at[i] = lacks ? kZeros : ColumnAt(x, c.x_step, i * kWideLanes + l);
    dy_at[i] = lacks ? kZeros : ColumnAt(dy, c.dy_step, i * kWideLanes + l);
  }
  const auto add = [&](V sum, size_t v) HWY_ATTR {
    if constexpr (kFirst) {
#if HWY_TARGET == HWY_SCALAR
      hn::StoreU(hn::PromoteTo(DF64(), sum), DF64(), lanes + v);
#else
      hn::StoreU(LowerToF64(sum), DF64(), lanes + v);
      hn::StoreU(UpperToF64(sum), DF64(), lanes + v + hn::Lanes(DF64()));
#endif
    } else {
      AddToColumns(sum, lanes + v);
    }
  };
#pragma GCC unroll 1
  for (size_t v = 0; v < lines; v += hn::Lanes(d)) {
    const V centre = hn::LoadU(d, c.centre + v);
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
HWY_NOINLINE void AddChain(const GradientLines<T>& c, size_t position, size_t left, double* lanes) {
  const T *x = ColumnAt(c.x, c.x_step, position), *dy = ColumnAt(c.dy, c.dy_step, position);
  for (size_t i = 0; c.ahead != 0 && i < kCount * kLanes; ++i) {
    PrefetchBehind(ColumnAt(x, c.x_step, i), c.lines * sizeof(T), c.ahead);
    PrefetchBehind(ColumnAt(dy, c.dy_step, i), c.lines * sizeof(T), c.ahead);
  }
  for (size_t l = 0; l < kWideLanes; ++l, lanes += 2 * kLinesAtOnce) {
    position == 0 ? AddChainOfLane<kCount, true>(c, x, dy, l, left, lanes)
                  : AddChainOfLane<kCount, false>(c, x, dy, l, left, lanes);
  }
}

template <class T>
void SumGradientsAcross(const GradientLines<T>& c, double* lanes) {
  if constexpr (!std::is_same_v<T, double>) {
    constexpr size_t kChain = kChainLines * kLanes, kNumbers = 2 * kLinesAtOnce;
    static_assert(kChainLines == 4);
    size_t done = 0;
    for (; c.positions - done >= kChain; done += kChain) AddChain<4>(c, done, kLanes, lanes);
    if (const size_t rest = c.positions - done; rest != 0) {
      const size_t whole = (rest - 1) / kLanes, left = rest - whole * kLanes;
      if (whole == 3) AddChain<4>(c, done, left, lanes);
      if (whole == 2) AddChain<3>(c, done, left, lanes);
      if (whole == 1) AddChain<2>(c, done, left, lanes);
      if (whole == 0) AddChain<1>(c, done, left, lanes);
    }
    const DF64 d;
    for (size_t half = kWideLanes / 2; half != 0; half /= 2) {
      for (size_t i = 0; i < half * kNumbers; i += hn::Lanes(d)) {
        hn::StoreU(hn::Add(hn::LoadU(d, lanes + i), hn::LoadU(d, lanes + half * kNumbers + i)), d, lanes + i);
      }
    }
  }
}

// Lines from `line` on that fill a cache line.
template <class T, bool kStream, class V>
HWY_INLINE void DxStepAcross(const GradientLines<T>& c, size_t line, V& watch) {
  const hn::ScalableTag<Arithmetic<T>> d;
  constexpr size_t kN = hn::MaxLanes(d), kCount = kVectorsOfStep<T>;
  V centre[kCount], rstd[kCount], gamma[kCount], k2[kCount], a[kCount];
  for (size_t k = 0, at = line; k < kCount; ++k, at += kN) {
    centre[k] = hn::LoadU(d, c.centre + at), rstd[k] = hn::LoadU(d, c.rstd + at);
    gamma[k] = hn::LoadU(d, c.gamma + at), k2[k] = hn::LoadU(d, c.k2 + at), a[k] = hn::LoadU(d, c.a + at);
  }
  const auto dx_of = [&](V x, V dy, size_t k)
                         HWY_ATTR { return DxOf(d, dy, gamma[k], hn::Sub(centre[k], x), rstd[k], k2[k], a[k], watch); };
  const T *x = c.x + line, *dy = c.dy + line;
  T* dx = c.dx + line;
  const ptrdiff_t x_step = c.x_step, dy_step = c.dy_step, dx_step = c.dx_step;
  const size_t ahead = c.ahead;
#pragma GCC unroll 1
  for (size_t i = 0, n = c.positions; i < n; ++i) {
    if (ahead != 0) {
      PrefetchBehind(x, 1, ahead);
      PrefetchBehind(dy, 1, ahead);
    }
    if constexpr (kCount == 1) {
      StoreWhole<kStream>(dx_of(LoadArithmetic(d, x), LoadArithmetic(d, dy), 0), d, dx);
    } else {
      HWY_UNROLL(8)
      for (size_t k = 0; k < kCount; k += 2) {
        const auto x_pair = LoadPair(d, x + k * kN), dy_pair = LoadPair(d, dy + k * kN);
        StorePair<kStream>(dx_of(x_pair.a, dy_pair.a, k), dx_of(x_pair.b, dy_pair.b, k + 1), d, dx + k * kN);
      }
    }
    x = ColumnAt(x, x_step, 1), dy = ColumnAt(dy, dy_step, 1), dx = ColumnAt(dx, dx_step, 1);
  }
}
template <class T, bool kStream>
HWY_NOINLINE bool DxOfPositions(const GradientLines<T>& all) {
  using A = Arithmetic<T>;
  auto watch = hn::Zero(hn::ScalableTag<A>());
  GradientLines<T> some = all;
  for (size_t i = 0; i < all.positions; i += kPositionsTogether) {
    some.positions = HWY_MIN(kPositionsTogether, all.positions - i);
    for (size_t line = 0; line < all.lines; line += kOfCacheLine<T>) DxStepAcross<T, kStream>(some, line, watch);
    some.x = ColumnAt(some.x, all.x_step, kPositionsTogether);
    some.dy = ColumnAt(some.dy, all.dy_step, kPositionsTogether);
    some.dx = ColumnAt(some.dx, all.dx_step, kPositionsTogether);
  }
  return AllFinite<A>(watch);
}
template <class T>
bool DxAcross(const GradientLines<T>& c) {
  if constexpr (!std::is_same_v<T, double>) {
    return StreamsLines(c.stream, c.dx, c.dx_step) ? DxOfPositions<T, true>(c) : DxOfPositions<T, false>(c);
  } else {
    return false;
  }
}

// --- along vectors

// The sums of dy of up to kMaxGroup lines go to `sums`, their products kLinesAtOnce numbers further. gamma is 1 for all
// positions.
template <class T>
void SumGradientsAlong(const GradientLines<T>& c, double* sums) {
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
        const auto lanes = RowLanes(ColumnAt(c.x, c.x_step, line), ColumnAt(c.dy, c.dy_step, line), c.gamma,
                                    c.centre[line], c.positions, c.ahead);
        g[r] = FoldVectors<kVectors, 1>(lanes.g);
        gd[r] = FoldVectors<kVectors, 1>(lanes.gd);
      }
      hn::StoreU(JoinFoldedRows<false>(g), DF64(), sums + i);
      hn::StoreU(JoinFoldedRows<false>(gd), DF64(), sums + kLinesAtOnce + i);
    }
  }
}

// dx of a line of at least two vectors of positions. It must be elsewhere: the last positions are stored twice.
template <class T, bool kStream, class V>
HWY_INLINE void DxOfLine(const GradientLines<T>& c, size_t line, V& watch) {
  const hn::ScalableTag<Arithmetic<T>> d;
  constexpr size_t kN = hn::MaxLanes(d), kPair = 2 * kN;
  const V centre = hn::Set(d, c.centre[line]), rstd = hn::Set(d, c.rstd[line]), gamma = hn::Set(d, c.gamma[line]),
          k2 = hn::Set(d, c.k2[line]), a = hn::Set(d, c.a[line]);
  const T *x = ColumnAt(c.x, c.x_step, line), *dy = ColumnAt(c.dy, c.dy_step, line);
  T* dx = ColumnAt(c.dx, c.dx_step, line);
  const size_t n = c.positions;
  const auto dx_of = [&](V x_of, V dy_of)
                         HWY_ATTR { return DxOf(d, dy_of, gamma, hn::Sub(centre, x_of), rstd, k2, a, watch); };
  const auto at = [&](size_t i) HWY_ATTR { return dx_of(LoadArithmetic(d, x + i), LoadArithmetic(d, dy + i)); };
  if (HWY_UNLIKELY(n < kPair)) {
    StoreArithmetic(at(0), d, dx);
    StoreArithmetic(at(n - kN), d, dx + n - kN);
    return;
  }
  const auto pair_at = [&](size_t i, auto stream) HWY_ATTR {
    const auto x_pair = LoadPair(d, x + i), dy_pair = LoadPair(d, dy + i);
    StorePair<decltype(stream)::value>(dx_of(x_pair.a, dy_pair.a), dx_of(x_pair.b, dy_pair.b), d, dx + i);
  };
  size_t i = 0;
  if constexpr (kStream) {
    constexpr size_t kBytes = sizeof(V);
    pair_at(0, std::false_type());
    i = (kBytes - reinterpret_cast<uintptr_t>(dx) % kBytes) % kBytes / sizeof(T);
  }
#pragma GCC unroll 1
  for (; i + kPair <= n; i += kPair) pair_at(i, std::bool_constant<kStream>());
  if (i != n) pair_at(n - kPair, std::false_type());
}
template <class T>
bool DxAlong(const GradientLines<T>& c) {
  if constexpr (!std::is_same_v<T, double>) {
    using A = Arithmetic<T>;
    auto watch = hn::Zero(hn::ScalableTag<A>());
    const bool can_stream = (reinterpret_cast<uintptr_t>(c.dx) | static_cast<uintptr_t>(c.dx_step)) % sizeof(T) == 0;
    for (size_t line = 0; line < c.lines; ++line) {
      c.stream&& can_stream ? DxOfLine<T, true>(c, line, watch) : DxOfLine<T, false>(c, line, watch);
    }
    return AllFinite<A>(watch);
  } else {
    return false;
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

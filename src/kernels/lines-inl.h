// Lines, the runs of columns that have one gamma and beta each. If neighbouring lines are neighbours in memory, a
// vector holds one position of several lines, and nothing is transposed. Included once per target.
#pragma once

#include "kernels/normalise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class T>
HWY_INLINE T* ColumnAt(T* first, ptrdiff_t step, size_t column) {
  return EvenRows<T>{first, step}.at(column);
}

// Adds kCount positions, kLanes apart from x on, to one lane of each line. kFirst: the lane is empty before.
template <bool kCentred, size_t kCount, bool kFirst, class T>
HWY_INLINE void AddPositions(const LinesAcross<T>& c, const T* x, double* lane) {
  const DF64 d;
  const AboutZero<kCentred, float> accumulate;
  const size_t lines = c.lines;
  const T* at[kCount];
  for (size_t i = 0; i < kCount; ++i) at[i] = ColumnAt(x, c.x_step, i * kLanes);
#pragma GCC unroll 1
  for (size_t v = 0; v < lines; v += hn::Lanes(d)) {
    V64 s = hn::Zero(d), q = s;
    if constexpr (!kFirst) s = hn::LoadU(d, lane + v), q = hn::LoadU(d, lane + kLinesAtOnce + v);
    HWY_UNROLL(8)
    for (size_t i = 0; i < kCount; ++i) accumulate(LoadF64(d, at[i] + v), 0, 0, s, q);
    hn::StoreU(s, d, lane + v);
    hn::StoreU(q, d, lane + kLinesAtOnce + v);
  }
}
// Adds kCount positions to each lane.
template <bool kCentred, size_t kCount, class T>
HWY_NOINLINE void AddToEachLane(const LinesAcross<T>& c, const T* x, bool first) {
  for (size_t l = 0; l < kLanes; ++l, x = ColumnAt(x, c.x_step, 1)) {
    for (size_t i = 0; c.ahead != 0 && i < kCount; ++i) {
      PrefetchBehind(ColumnAt(x, c.x_step, i * kLanes), c.lines * sizeof(T), c.ahead);
    }
    double* lane = c.lanes + 2 * l * kLinesAtOnce;
    first ? AddPositions<kCentred, kCount, true>(c, x, lane) : AddPositions<kCentred, kCount, false>(c, x, lane);
  }
}

// Whether lines stay in L1, so that each can be finished before the next.
template <class Lines>
HWY_INLINE bool StayNear(const Lines& c) {
  return c.lines * c.positions * sizeof(*c.x) <= kNearBytes;
}

// Adds all positions to a lane of each line, which is empty before.
template <bool kCentred, class T>
HWY_INLINE void AddLane(const LinesAcross<T>& c, size_t lane, double* to) {
  const DF64 d;
  const AboutZero<kCentred, float> accumulate;
  constexpr size_t kAtOnce = HWY_MIN(kMaxGroup / hn::MaxLanes(d), 2);
  for (size_t v = 0; v < c.lines; v += kAtOnce * hn::Lanes(d)) {
    V64 s[kAtOnce], q[kAtOnce];
    for (size_t k = 0; k < kAtOnce; ++k) s[k] = q[k] = hn::Zero(d);
    const T* x = ColumnAt(c.x + v, c.x_step, lane);
#pragma GCC unroll 1
    for (size_t i = lane; i < c.positions; i += kLanes, x = ColumnAt(x, c.x_step, kLanes)) {
      for (size_t k = 0; k < kAtOnce; ++k) accumulate(LoadF64(d, x + k * hn::Lanes(d)), 0, 0, s[k], q[k]);
    }
    for (size_t k = 0; k < kAtOnce; ++k) {
      hn::StoreU(s[k], d, to + v + k * hn::Lanes(d));
      hn::StoreU(q[k], d, to + kLinesAtOnce + v + k * hn::Lanes(d));
    }
  }
}
template <bool kCentred, class T>
HWY_NOINLINE void AddLanes(const LinesAcross<T>& c) {
  for (size_t l = 0; l < kLanes; ++l) AddLane<kCentred>(c, l, c.lanes + 2 * l * kLinesAtOnce);
}

template <bool kCentred, class T>
HWY_INLINE void AddByPositions(const LinesAcross<T>& c) {
  for (size_t i = 2 * kLinesAtOnce * c.positions; i < 2 * kLinesAtOnce * kLanes; ++i) c.lanes[i] = 0;
  size_t left = c.positions;
  const T* x = c.x;
  const auto add = [&]<size_t kCount>() HWY_ATTR {
    for (; left >= kCount * kLanes; left -= kCount * kLanes, x = ColumnAt(x, c.x_step, kCount * kLanes)) {
      AddToEachLane<kCentred, kCount>(c, x, left == c.positions);
    }
  };
  add.template operator()<kPositionsOfLane>();
  add.template operator()<kPositionsOfLane / 2>();
  add.template operator()<1>();
  for (size_t l = 0; l < left; ++l, x = ColumnAt(x, c.x_step, 1)) {
    double* lane = c.lanes + 2 * l * kLinesAtOnce;
    left == c.positions ? AddPositions<kCentred, 1, true>(c, x, lane) : AddPositions<kCentred, 1, false>(c, x, lane);
  }
}

template <class T, bool kCentred>
void SumLinesAcross(const LinesAcross<T>& c) {
  if constexpr (!std::is_same_v<T, double>) {
    const DF64 d;
    StayNear(c) ? AddLanes<kCentred>(c) : AddByPositions<kCentred>(c);
    for (size_t v = 0; v < c.lines; v += hn::Lanes(d)) {
      V64 s[kLanes], q[kLanes];
      for (size_t l = 0; l < kLanes; ++l) {
        s[l] = hn::LoadU(d, c.lanes + 2 * l * kLinesAtOnce + v);
        q[l] = hn::LoadU(d, c.lanes + (2 * l + 1) * kLinesAtOnce + v);
      }
      hn::StoreU(FoldVectors<kLanes, 1>(s), d, c.lanes + v);
      hn::StoreU(FoldVectors<kLanes, 1>(q), d, c.lanes + kLinesAtOnce + v);
    }
  }
}

// The vectors of the lines that are normalised at once: those of a cache line, which may then be written with
// non-temporal stores.
template <class T>
inline constexpr size_t kVectorsOfStep = kOfCacheLine<T> / hn::MaxLanes(hn::ScalableTag<Arithmetic<T>>());
template <class T>
HWY_INLINE bool StreamsLines(bool stream, const T* y, ptrdiff_t step) {
  return stream && (reinterpret_cast<uintptr_t>(y) | static_cast<uintptr_t>(step)) % 64 == 0;
}

template <class T, bool kStream, bool kByPosition>
HWY_INLINE void NormaliseStepAcross(const NormaliseLines<T>& c, size_t line) {
  using A = Arithmetic<T>;
  const hn::ScalableTag<A> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t kN = hn::MaxLanes(d), kCount = kVectorsOfStep<T>;
  V centre[kCount], offset[kCount], rstd[kCount], gamma[kCount], beta[kCount];
  for (size_t k = 0, at = line; k < kCount; ++k, at += kN) {
    centre[k] = hn::LoadU(d, c.centre + at), offset[k] = hn::LoadU(d, c.offset + at);
    rstd[k] = hn::LoadU(d, c.rstd + at);
    gamma[k] = kByPosition ? hn::Zero(d) : hn::LoadU(d, c.gamma + at);
    beta[k] = kByPosition ? hn::Zero(d) : hn::LoadU(d, c.beta + at);
  }
  const T* x = c.x + line;
  T* y = c.y + line;
  const ptrdiff_t x_step = c.x_step, y_step = c.y_step;
  const size_t ahead = c.ahead;
#pragma GCC unroll 1
  for (size_t i = 0, n = c.positions; i < n; ++i, x = ColumnAt(x, x_step, 1), y = ColumnAt(y, y_step, 1)) {
    if (ahead != 0) PrefetchBehind(x, 1, ahead);
    V scale = hn::Zero(d), shift = scale;
    if constexpr (kByPosition) scale = hn::Set(d, load_one(c.gamma + i)), shift = hn::Set(d, load_one(c.beta + i));
    const auto normalised = [&](V v, size_t k) HWY_ATTR {
      const NormaliseVectors<true, decltype(d)> normalise(centre[k], offset[k], rstd[k]);
      return kByPosition ? normalise(d, v, scale, shift) : normalise(d, v, gamma[k], beta[k]);
    };
    if constexpr (kCount == 1) {
      StoreWhole<kStream>(normalised(LoadArithmetic(d, x), 0), d, y);
    } else {
      HWY_UNROLL(8)
      for (size_t k = 0; k < kCount; k += 2) {
        const auto from = LoadPair(d, x + k * kN);
        StorePair<kStream>(normalised(from.a, k), normalised(from.b, k + 1), d, y + k * kN);
      }
    }
  }
}
template <class T, bool kStream, bool kByPosition>
HWY_NOINLINE void NormalisePositions(const NormaliseLines<T>& all) {
  NormaliseLines<T> some = all;
  const size_t together = StayNear(all) ? all.positions : kPositionsTogether;
  for (size_t i = 0; i < all.positions; i += together) {
    some.positions = HWY_MIN(together, all.positions - i);
    for (size_t line = 0; line < all.lines; line += kOfCacheLine<T>) {
      NormaliseStepAcross<T, kStream, kByPosition>(some, line);
    }
    some.x = ColumnAt(some.x, all.x_step, together);
    some.y = ColumnAt(some.y, all.y_step, together);
    if constexpr (kByPosition) some.gamma += together, some.beta += together;
  }
}

template <class T, bool kStream>
HWY_INLINE void NormalisePositions(const NormaliseLines<T>& c) {
  c.by_position ? NormalisePositions<T, kStream, true>(c) : NormalisePositions<T, kStream, false>(c);
}
template <class T>
void NormaliseLinesAcross(const NormaliseLines<T>& c) {
  if constexpr (!std::is_same_v<T, double>) {
    StreamsLines(c.stream, c.y, c.y_step) ? NormalisePositions<T, true>(c) : NormalisePositions<T, false>(c);
  }
}

// One line of n positions. The last ones, which do not fill vectors, are loaded before others are stored, and stored
// once more: y may be x.
template <bool kStream, class T, class A>
HWY_INLINE void NormaliseLine(const NormScalars<A>& scalars, A gamma, A beta, const T* x, size_t n, size_t ahead,
                              T* y) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d), kPair = 2 * kN;
  static_assert(kN <= kLeastRun);
  const NormaliseVectors<true, decltype(d)> normalise(d, scalars);
  const auto scale = hn::Set(d, gamma), shift = hn::Set(d, beta);
  const auto of = [&](auto v) HWY_ATTR { return normalise(d, v, scale, shift); };
  if (HWY_UNLIKELY(n < kPair)) {
    const auto first = LoadArithmetic(d, x), last = LoadArithmetic(d, x + n - kN);
    StoreArithmetic(of(first), d, y);
    StoreArithmetic(of(last), d, y + n - kN);
    return;
  }
  const auto last = LoadPair(d, x + n - kPair);
  size_t i = 0;
  if constexpr (kStream) {  // y is elsewhere
    const auto first = LoadPair(d, x);
    StorePair<false>(of(first.a), of(first.b), d, y);
    constexpr size_t kBytes = sizeof(last.a);
    i = (kBytes - reinterpret_cast<uintptr_t>(y) % kBytes) % kBytes / sizeof(T);
  }
#pragma GCC unroll 1
  for (; i + kPair <= n; i += kPair) {
    if (ahead != 0) PrefetchBehind(x + i, kPair * sizeof(T), ahead);
    const auto from = LoadPair(d, x + i);
    StorePair<kStream>(of(from.a), of(from.b), d, y + i);
  }
  StorePair<false>(of(last.a), of(last.b), d, y + n - kPair);
}
template <class T, bool kStream>
HWY_NOINLINE void NormaliseEachLine(const NormaliseLines<T>& c) {
  for (size_t i = 0; i < c.lines; ++i) {
    NormaliseLine<kStream>(NormScalars<Arithmetic<T>>{c.centre[i], c.offset[i], c.rstd[i]}, c.gamma[i], c.beta[i],
                           ColumnAt(c.x, c.x_step, i), c.positions, c.ahead, ColumnAt(c.y, c.y_step, i));
  }
}
template <class T>
void NormaliseLinesAlong(const NormaliseLines<T>& c) {
  if constexpr (!std::is_same_v<T, double>) {
    const bool can_stream = reinterpret_cast<uintptr_t>(c.y) % sizeof(T) == 0;
    const bool streams = c.stream && can_stream && static_cast<uintptr_t>(c.y_step) % sizeof(T) == 0;
    streams ? NormaliseEachLine<T, true>(c) : NormaliseEachLine<T, false>(c);
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// The forward pass of channels that lie side by side. A vector holds several channels at one position, so nothing is
// transposed. Included once per target.
#pragma once

#include "kernels/channels_first-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Adds kCount positions, kLanes apart from x on, to one lane of each channel.
template <bool kCentred, size_t kCount, class T>
HWY_INLINE void AddPositions(const SumsSideBySide<T>& c, const T* x, double* lane) {
  const DF64 d;
  const AboutZero<kCentred, float> accumulate;
  const size_t channels = c.channels, squares = c.squares;
  const T* at[kCount];
  for (size_t i = 0; i < kCount; ++i) at[i] = ColumnAt(x, c.x_step, i * kLanes);
#pragma GCC unroll 1
  for (size_t v = 0; v < channels; v += hn::Lanes(d)) {
    V64 s = hn::LoadU(d, lane + v), q = hn::LoadU(d, lane + squares + v);
    HWY_UNROLL(8)
    for (size_t i = 0; i < kCount; ++i) accumulate(LoadF64(d, at[i] + v), 0, 0, s, q);
    hn::StoreU(s, d, lane + v);
    hn::StoreU(q, d, lane + squares + v);
  }
}
// Adds kCount lines of lanes, beginning with lane 0.
template <bool kCentred, size_t kCount, class T>
HWY_NOINLINE void AddLines(const SumsSideBySide<T>& c, const T* x) {
  for (size_t l = 0; l < kLanes; ++l, x = ColumnAt(x, c.x_step, 1)) {
    for (size_t i = 0; i < kCount; ++i) {
      PrefetchBehind(ColumnAt(x, c.x_step, i * kLanes), c.channels * sizeof(T), c.ahead);
    }
    AddPositions<kCentred, kCount>(c, x, c.lanes + 2 * l * c.squares);
  }
}

template <class T, bool kCentred>
void SumSideBySide(const SumsSideBySide<T>& c) {
  if constexpr (!std::is_same_v<T, double>) {
    constexpr size_t kMost = kPositionsAtOnce / kLanes;
    for (size_t i = 0, n; i < c.positions; i += n) {
      const T* x = ColumnAt(c.x, c.x_step, i);
      const size_t lane = (c.first + i) % kLanes, lines = lane == 0 ? (c.positions - i) / kLanes : 0;
      if (lines >= kMost) {
        n = kMost * kLanes;
        AddLines<kCentred, kMost>(c, x);
      } else if (lines != 0) {
        n = kLanes;
        AddLines<kCentred, 1>(c, x);
      } else {
        n = 1;
        PrefetchBehind(x, c.channels * sizeof(T), c.ahead);
        AddPositions<kCentred, 1>(c, x, c.lanes + 2 * lane * c.squares);
      }
    }
  }
}

inline void JoinSideBySide(const double* lanes, size_t squares, RowGroup<float>& group) {
  for (size_t v = 0; v < kMaxGroup; v += hn::MaxLanes(DF64())) {
    V64 s[kLanes], q[kLanes];
    for (size_t l = 0; l < kLanes; ++l) {
      s[l] = hn::LoadU(DF64(), lanes + 2 * l * squares + v);
      q[l] = hn::LoadU(DF64(), lanes + (2 * l + 1) * squares + v);
    }
    StoreSums({FoldVectors<kLanes, 1>(s), FoldVectors<kLanes, 1>(q)}, group, v);
  }
}

// The scalars of a channel differ from those of its neighbours, but not from position to position.
template <class T, bool kCentred, bool kStream>
HWY_NOINLINE void NormalisePositions(const SideBySide<T>& rows) {
  using A = Arithmetic<T>;
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d), kStep = kChannelsFirstStep<T>;
  const size_t channels = rows.channels;
  const A *centre = rows.centre, *offset = rows.offset, *rstd = rows.rstd, *gamma = rows.gamma, *beta = rows.beta;
  const auto normalise = [=](hn::Vec<decltype(d)> x, size_t c) HWY_ATTR {
    const NormaliseVectors<kCentred, decltype(d)> by(hn::LoadU(d, centre + c), hn::LoadU(d, offset + c),
                                                     hn::LoadU(d, rstd + c));
    return by(d, x, hn::LoadU(d, gamma + c), hn::LoadU(d, beta + c));
  };
  const T* x = rows.x;
  T* y = rows.y;
  for (size_t i = 0; i < rows.positions; ++i, x = ColumnAt(x, rows.x_step, 1), y = ColumnAt(y, rows.y_step, 1)) {
#pragma GCC unroll 1
    for (size_t c = 0; c < channels; c += kStep) {
      if constexpr (kStep == 2 * kN) {
        const auto from = LoadPair(d, x + c);
        StorePair<kStream>(normalise(from.a, c), normalise(from.b, c + kN), d, y + c);
      } else {
        StoreWhole<kStream>(normalise(LoadArithmetic(d, x + c), c), d, y + c);
      }
    }
  }
}
template <class T>
void NormaliseSideBySide(const SideBySide<T>& rows) {
  bool centred = !HWY_NATIVE_FMA;
  for (size_t c = 0; c < rows.channels; ++c) centred = centred || rows.centre[c] != 0;
  if (StreamsLines(rows.stream, rows.y, rows.y_step)) {
    centred ? NormalisePositions<T, true, kFillsLines<T>>(rows) : NormalisePositions<T, false, kFillsLines<T>>(rows);
  } else {
    centred ? NormalisePositions<T, true, false>(rows) : NormalisePositions<T, false, false>(rows);
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

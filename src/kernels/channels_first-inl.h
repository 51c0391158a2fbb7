// Channels-first rows. A vector holds one column of several rows, so nothing is transposed. The virtual lanes are
// summed one after another. Included once per target.
#pragma once

#include "kernels/normalise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class T>
HWY_INLINE T* ColumnAt(T* first, ptrdiff_t step, size_t column) {
  return EvenRows<T>{first, step}.at(column);
}

// The sums of as many rows as a few vectors hold.
template <class T, bool kCentred>
class ChannelsFirstSums {
  using A = Arithmetic<T>;
  static constexpr size_t kN = hn::MaxLanes(DF64());

 public:
  static constexpr size_t kVectors = kChannelsFirstRows<T> / kN;
  static constexpr size_t kMost = kN == 8 ? 2 : 4;
  static constexpr size_t kAtOnce = HWY_MIN(kVectors, kMost);

  // Sums the rows of the vectors from v0 on.
  static HWY_INLINE void Run(const ChannelsFirstRows<T>& rows, size_t v0) {
    Lanes s, q;
    for (size_t lane = 0; lane < kLanes; ++lane) SumLane(rows, v0 * kN, lane, s, q);
    for (size_t v = 0; v < kAtOnce; ++v) {
      const size_t row = (v0 + v) * kN;
      StoreSums({FoldVectors<kLanes, 1>(s[v]), FoldVectors<kLanes, 1>(q[v])}, rows.groups[row / kMaxGroup],
                row % kMaxGroup);
    }
  }

 private:
  using Lanes = V64[kAtOnce][kLanes];

  static HWY_INLINE void SumLane(const ChannelsFirstRows<T>& rows, size_t row, size_t lane, Lanes& s_to, Lanes& q_to) {
    const DF64 d;
    const AboutZero<kCentred, A> accumulate;
    V64 s[kAtOnce], q[kAtOnce];
    for (size_t v = 0; v < kAtOnce; ++v) s[v] = q[v] = hn::Zero(d);
    const T* x = ColumnAt(rows.x + row, rows.x_step, lane);
#pragma GCC unroll 1
    for (size_t c = lane; c < rows.n; c += kLanes, x = ColumnAt(x, rows.x_step, kLanes)) {
      for (size_t v = 0; v < kAtOnce; ++v) accumulate(LoadF64(d, x + v * kN), 0, 0, s[v], q[v]);
    }
    for (size_t v = 0; v < kAtOnce; ++v) {
      s_to[v][lane] = s[v];
      q_to[v][lane] = q[v];
    }
  }
};

template <class T, bool kCentred>
void SumChannelsFirstRows(const ChannelsFirstRows<T>& rows) {
  using Sums = ChannelsFirstSums<T, kCentred>;
  for (size_t v = 0; v < Sums::kVectors; v += Sums::kAtOnce) Sums::Run(rows, v);
}

// The scalars of all rows, contiguous for each scalar.
template <class T, class A = Arithmetic<T>>
struct ChannelsFirstScalars {
  HWY_INLINE explicit ChannelsFirstScalars(const ChannelsFirstRows<T>& rows) {
    for (size_t row = 0; row < kChannelsFirstRows<T>; row += kMaxGroup) {
      const NormScalarsOfRows<A>& scalars = rows.groups[row / kMaxGroup].scalars;
      std::memcpy(centre + row, scalars.centre, sizeof scalars.centre);
      std::memcpy(offset + row, scalars.offset, sizeof scalars.offset);
      std::memcpy(rstd + row, scalars.rstd, sizeof scalars.rstd);
      any_centre = any_centre || AnyCentre(scalars, kMaxGroup);
    }
  }

  alignas(64) A centre[kChannelsFirstRows<T>], offset[kChannelsFirstRows<T>], rstd[kChannelsFirstRows<T>];
  bool any_centre = !HWY_NATIVE_FMA;
};

// Rows that are normalised at once: a pair of vectors, or a single one if that is all.
template <class T, class D = hn::ScalableTag<Arithmetic<T>>>
inline constexpr size_t kChannelsFirstStep = HWY_MIN(2 * hn::MaxLanes(D()), kChannelsFirstRows<T>);

// Whether these fill cache lines, so that y may be written with non-temporal stores; and whether it is.
template <class T>
inline constexpr bool kFillsLines = kChannelsFirstStep<T> == kChannelsFirstRows<T>;
template <class T>
HWY_INLINE bool StreamsLines(bool stream, const T* y, ptrdiff_t step) {
  return kFillsLines<T> && stream && (reinterpret_cast<uintptr_t>(y) | static_cast<uintptr_t>(step)) % 64 == 0;
}

// Normalises that many rows from `row` on. kStream: with non-temporal stores; all of y must be aligned to cache lines.
template <class T, bool kCentred, bool kStream>
HWY_NOINLINE void NormaliseChannelsFirstStep(const ChannelsFirstRows<T>& rows, const ChannelsFirstScalars<T>& scalars,
                                             size_t row) {
  using A = Arithmetic<T>;
  const hn::ScalableTag<A> d;
  using Normalise = NormaliseVectors<kCentred, decltype(d)>;
  constexpr size_t kN = hn::MaxLanes(d);
  constexpr bool kPair = kChannelsFirstStep<T> == 2 * kN;
  const size_t n = rows.n, ahead = rows.ahead, last = kPair ? row + kN : row;
  const ptrdiff_t x_step = rows.x_step, y_step = rows.y_step;
  const A *gamma = rows.gamma, *beta = rows.beta;
  const Normalise normalise(hn::Load(d, scalars.centre + row), hn::Load(d, scalars.offset + row),
                            hn::Load(d, scalars.rstd + row));
  const Normalise other(hn::Load(d, scalars.centre + last), hn::Load(d, scalars.offset + last),
                        hn::Load(d, scalars.rstd + last));
  const T* x = rows.x + row;
  T* y = rows.y + row;
#pragma GCC unroll 1
  for (size_t c = 0; c < n; ++c, x = ColumnAt(x, x_step, 1), y = ColumnAt(y, y_step, 1)) {
    const auto scale = hn::Set(d, load_one(gamma + c)), shift = hn::Set(d, load_one(beta + c));
    PrefetchBehind(x, 1, ahead);
    if constexpr (kPair) {
      const auto from = LoadPair(d, x);
      StorePair<kStream>(normalise(d, from.a, scale, shift), other(d, from.b, scale, shift), d, y);
    } else {
      StoreWhole<kStream>(normalise(d, LoadArithmetic(d, x), scale, shift), d, y);
    }
  }
}

template <class T>
void NormaliseChannelsFirstRows(const ChannelsFirstRows<T>& rows) {
  const bool stream = StreamsLines(rows.stream, rows.y, rows.y_step);
  const ChannelsFirstScalars<T> scalars(rows);
  for (size_t row = 0; row < kChannelsFirstRows<T>; row += kChannelsFirstStep<T>) {
    if (scalars.any_centre) {
      stream ? NormaliseChannelsFirstStep<T, true, kFillsLines<T>>(rows, scalars, row)
             : NormaliseChannelsFirstStep<T, true, false>(rows, scalars, row);
    } else {
      stream ? NormaliseChannelsFirstStep<T, false, kFillsLines<T>>(rows, scalars, row)
             : NormaliseChannelsFirstStep<T, false, false>(rows, scalars, row);
    }
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// Gradients of channels that lie side by side. A vector holds several channels at one position, so nothing is
// transposed. Included once per target.
#pragma once

#include "kernels/gradient_dx-inl.h"
#include "kernels/gradient_sums-inl.h"
#include "kernels/side_by_side-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Adds the lines of a chain to wide lane l of each channel: dy to lanes[channel], its product to the channels behind.
// dy and x are the lane's first position.
template <size_t kLines, class T>
HWY_INLINE void AddChainOfLane(const GradientsSideBySide<T>& c, const T* x, const T* dy, double* lanes) {
  using V = hn::Vec<DF32>;
  const DF32 d;
  const size_t channels = c.channels;
  const T *x_at[2 * kLines], *dy_at[2 * kLines];
  for (size_t i = 0; i < 2 * kLines; ++i) {
    x_at[i] = ColumnAt(x, c.x_step, i * kWideLanes);
    dy_at[i] = ColumnAt(dy, c.dy_step, i * kWideLanes);
  }
#pragma GCC unroll 1
  for (size_t v = 0; v < channels; v += hn::Lanes(d)) {
    const V centre = hn::LoadU(d, c.centre + v);
    LineSums<V> halves[2];
    HWY_UNROLL(8)
    for (size_t i = 0; i < 2 * kLines; ++i) {
      halves[i % 2].AddLine(i / 2, LoadArithmetic(d, dy_at[i] + v), hn::Sub(centre, LoadArithmetic(d, x_at[i] + v)));
    }
    AddToColumns(hn::Add(halves[0].g, halves[1].g), lanes + v);
    AddToColumns(hn::Add(halves[0].Products(kLines), halves[1].Products(kLines)), lanes + channels + v);
  }
}
template <size_t kLines, class T>
HWY_NOINLINE void AddChain(const GradientsSideBySide<T>& c, const T* x, const T* dy, double* lanes) {
  for (size_t l = 0; l < kWideLanes; ++l, x = ColumnAt(x, c.x_step, 1), dy = ColumnAt(dy, c.dy_step, 1)) {
    AddChainOfLane<kLines>(c, x, dy, lanes + l * 2 * c.channels);
  }
}

template <class T>
void SumGradientsSideBySide(const GradientsSideBySide<T>& c, double* lanes) {
  if constexpr (!std::is_same_v<T, double>) {
    const size_t of_lane = 2 * c.channels;
    for (size_t i = 0; i < kWideLanes * of_lane; ++i) lanes[i] = 0;
    const T *x = c.x, *dy = c.dy;
    constexpr size_t kChain = kChainLines * kLanes;
    size_t left = c.positions;
    for (; left >= kChain; left -= kChain, x = ColumnAt(x, c.x_step, kChain), dy = ColumnAt(dy, c.dy_step, kChain)) {
      AddChain<kChainLines>(c, x, dy, lanes);
    }
    if (left == 3 * kLanes) AddChain<3>(c, x, dy, lanes);
    if (left == 2 * kLanes) AddChain<2>(c, x, dy, lanes);
    if (left == kLanes) AddChain<1>(c, x, dy, lanes);
    for (size_t n = kWideLanes / 2 * of_lane; n >= of_lane; n /= 2) {
      for (size_t i = 0; i < n; ++i) lanes[i] += lanes[n + i];
    }
  }
}

template <class T, bool kStream>
HWY_NOINLINE bool DxOfPositions(const GradientsSideBySide<T>& all) {
  using A = Arithmetic<T>;
  const hn::ScalableTag<A> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t kN = hn::MaxLanes(d), kStep = kChannelsFirstStep<T>;
  const GradientsSideBySide<T> c = all;
  V watch = hn::Zero(d);
  const auto dx_of = [&](const T* x, const T* dy, size_t i) HWY_ATTR {
    const V difference = hn::Sub(hn::LoadU(d, c.centre + i), LoadArithmetic(d, x + i));
    const V rest = Fma(d, difference, hn::LoadU(d, c.k2 + i), hn::LoadU(d, c.a + i));
    const V dx = Fma(d, hn::Mul(LoadArithmetic(d, dy + i), hn::LoadU(d, c.gamma + i)), hn::LoadU(d, c.rstd + i), rest);
    watch = hn::Add(watch, dx);
    return dx;
  };
  for (size_t position = 0; position < c.positions; ++position) {
    const T* x = ColumnAt(c.x, c.x_step, position);
    const T* dy = ColumnAt(c.dy, c.dy_step, position);
    T* dx = ColumnAt(c.dx, c.dx_step, position);
#pragma GCC unroll 1
    for (size_t i = 0; i < c.channels; i += kStep) {
      const V first = dx_of(x, dy, i);
      if constexpr (kStep == 2 * kN) {
        StorePair<kStream>(first, dx_of(x, dy, i + kN), d, dx + i);
      } else {
        StoreWhole<kStream>(first, d, dx + i);
      }
    }
  }
  return AllFinite<A>(watch);
}
template <class T>
bool DxSideBySide(const GradientsSideBySide<T>& c) {
  return StreamsLines(c.stream, c.dx, c.dx_step) ? DxOfPositions<T, kFillsLines<T>>(c) : DxOfPositions<T, false>(c);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

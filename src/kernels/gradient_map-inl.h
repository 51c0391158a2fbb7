// The dx step: dx = fma(dy gamma, rstd, fma(-(x - mean), k2, -k1)) with k1 = c1 rstd and k2 = c2 rstd^2. Also the
// scalars of several rows; groups of short rows in one call; and ranges of magnitudes. Included once per target.
#pragma once

#include "kernels/gradient_look-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class D, class V = hn::Vec<D>>
struct GradientMapVectors {
  V mean, rstd, k2, minus_k1;

  template <class A>
  HWY_INLINE GradientMapVectors(D d, const GradientMapScalars<A>& s)
      : mean(hn::Set(d, s.mean)), rstd(hn::Set(d, s.rstd)), k2(hn::Set(d, s.k2)), minus_k1(hn::Set(d, s.minus_k1)) {}

  // finite: stays 0 while dx is finite, else becomes NaN.
  HWY_INLINE V operator()(D d, V x, V dy, V gamma, V& finite) const {
    const V t = hn::Sub(x, mean);
    const V dx = Fma(d, hn::Mul(dy, gamma), rstd, Fma(d, hn::Neg(t), k2, minus_k1));
    finite = hn::MulAdd(dx, hn::Zero(d), finite);
    return dx;
  }
};

// n columns. kStream: with non-temporal stores; dx must be aligned to a whole vector. Values that are not finite may be
// wrong in a dx of a 16-bit type.
template <bool kStream, class T, class A = Arithmetic<T>>
HWY_INLINE void MapGradient(const GradientMapScalars<A>& scalars, const T* x, const T* dy, const A* gamma, size_t n,
                            T* dx, GradientWatch<A>& watch) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const GradientMapVectors<hn::ScalableTag<A>> map(d, scalars);
  auto even = watch.even, odd = watch.odd;
  size_t i = 0;
#pragma GCC unroll 1
  for (; i + 2 * kN <= n; i += 2 * kN) {
    const auto xs = LoadPair(d, x + i), dys = LoadPair(d, dy + i), gammas = LoadPair(d, gamma + i);
    StorePair<kStream>(map(d, xs.a, dys.a, gammas.a, even), map(d, xs.b, dys.b, gammas.b, odd), d, dx + i);
  }
  for (; i < n; i += kN) {
    const size_t rest = HWY_MIN(kN, n - i);
    A x_tail[kN] = {}, dy_tail[kN] = {}, gamma_tail[kN] = {}, dx_tail[kN];
    Widen(x + i, x_tail, rest);
    Widen(dy + i, dy_tail, rest);
    std::memcpy(gamma_tail, gamma + i, rest * sizeof(A));
    auto unused = hn::Zero(d);
    hn::StoreU(map(d, hn::LoadU(d, x_tail), hn::LoadU(d, dy_tail), hn::LoadU(d, gamma_tail), unused), d, dx_tail);
    for (size_t k = 0; k < rest; ++k) even = hn::Add(even, hn::Set(d, dx_tail[k] * A{0}));
    Narrow(dx_tail, dx + i, rest);
  }
  watch.even = even;
  watch.odd = odd;
}

template <class T, class A = Arithmetic<T>>
EVENORM_INLINE_LOOP void MapGradientOf(const GradientMapScalars<A>& scalars, const GradientRow<T>& row, const A* gamma,
                                       size_t n, T* dx, bool stream, GradientWatch<A>& watch) {
  stream&& IsAlignedToVector(dx) ? MapGradient<true>(scalars, row.x, row.dy, gamma, n, dx, watch)
                                 : MapGradient<false>(scalars, row.x, row.dy, gamma, n, dx, watch);
}

// Returns true if all of dx is finite.
template <class T>
bool MapGradients(const GradientMapRows<T>& map) {
  using A = Arithmetic<T>;
  GradientWatch<A> watch;
  for (size_t r = 0; r < map.count; ++r) {
    MapGradientOf(map.scalars->of(r), map.rows[r], map.gamma, map.n, map.dx[r], map.stream, watch);
  }
  return watch.AllFinite();
}

// False, and nothing of use in `map`, where a row needs more than f32 to be mapped.
HWY_INLINE bool FinishGradientGroup(const GradientGroup& group, size_t cols, bool centred,
                                    GradientMapScalarsOfRows<float>& map) {
  const hn::CappedTag<double, kRowsAtOnce> d;
  using W = Plain<hn::CappedTag<double, kRowsAtOnce>>;
  bool holds = true;
  for (size_t r = 0; r < kRowsAtOnce; r += hn::MaxLanes(d)) {
    const W rstd{hn::Load(d, group.rstd + r)};
    const WideSums<W> sums{{hn::Load(d, group.sums + r)}, {hn::Load(d, group.sums + kRowsAtOnce + r)}};
    const auto means = GradientMeansOf(d, centred, sums, rstd, cols);
    holds = holds &&
            hn::AllTrue(d, StoreGradientMap<float>(d, hn::Load(d, group.mean + r), hn::Zero(d), rstd, means, r, map));
  }
  return holds;
}

// A group's sums, to group.sums; and over the rows, to the columns'.
template <class T, bool kCentred>
HWY_INLINE void LookAtGroup(const GradientRow<T>* rows, const GradientShortRows<T>& all, GradientGroup& group) {
  if (HWY_LIKELY(all.n % kLanes == 0 && all.columns.dgamma != nullptr)) {
    return LookAtOnce<T, kCentred, LookFor::both>(rows, all.gamma, all.n, all.columns, group.sums);
  }
  BlockSums sums[kRowsAtOnce];
  LookAtGradients<T, kCentred>({rows, kRowsAtOnce, all.gamma, all.n, all.columns, nullptr, true, true, sums});
  for (size_t r = 0; r < kRowsAtOnce; ++r) {
    group.sums[r] = sums[r].s.hi;
    group.sums[kRowsAtOnce + r] = sums[r].q.hi;
  }
}

template <class T, bool kCentred>
size_t GradientsOfShortRows(const GradientShortRows<T>& all, BlockSums* sums) {
  if constexpr (std::is_same_v<T, double>) {
    (void)all, (void)sums;
    return 0;  // f64 arithmetic looks at each row's range
  } else {
    const hn::CappedTag<double, kRowsAtOnce> d;
    for (size_t done = 0; done < all.count; done += kRowsAtOnce) {
      GradientRow<T> rows[kRowsAtOnce];
      GradientGroup group;
      for (size_t r = 0; r < kRowsAtOnce; ++r) {
        rows[r] = {all.x.at(done + r), all.dy.at(done + r), all.mean[done + r], 0, all.rstd[done + r], all.ahead};
      }
      for (size_t r = 0; r < kRowsAtOnce; r += hn::MaxLanes(d)) {
        hn::Store(hn::LoadU(d, all.mean + done + r), d, group.mean + r);
        hn::Store(hn::LoadU(d, all.rstd + done + r), d, group.rstd + r);
      }
      LookAtGroup<T, kCentred>(rows, all, group);
      GradientMapScalarsOfRows<float> scalars;
      bool holds = FinishGradientGroup(group, all.n, kCentred, scalars);
      if (HWY_LIKELY(holds)) {
        GradientWatch<float> watch;
        for (size_t r = 0; r < kRowsAtOnce; ++r) {
          MapGradientOf(scalars.of(r), rows[r], all.gamma, all.n, all.dx.at(done + r), all.stream, watch);
        }
        holds = watch.AllFinite();
      }
      if (HWY_LIKELY(holds)) continue;
      for (size_t r = 0; r < kRowsAtOnce; ++r) sums[r] = {{group.sums[r], 0}, {group.sums[kRowsAtOnce + r], 0}};
      return done;
    }
    return all.count;
  }
}

inline void IncludeMagnitudesOf(const double* values, size_t n, MagnitudeRange* range) {
  const hn::ScalableTag<double> d;
  constexpr size_t kN = hn::MaxLanes(d);
  auto least = hn::Set(d, range->least), largest = hn::Set(d, range->largest), watch = hn::Zero(d);
  const auto include = [&](hn::Vec<decltype(d)> v) HWY_ATTR {
    const auto magnitude = hn::Abs(v);
    const auto absent = hn::Set(d, std::numeric_limits<double>::infinity());
    least = hn::Min(least, hn::IfThenElse(hn::Eq(magnitude, hn::Zero(d)), absent, magnitude));
    largest = hn::Max(largest, magnitude);
    watch = hn::MulAdd(v, hn::Zero(d), watch);  // Min() and Max() may drop a NaN
  };
  size_t i = 0;
  for (; i + kN <= n; i += kN) include(hn::LoadU(d, values + i));
  double tail[kN] = {};
  std::memcpy(tail, values + i, (n - i) * sizeof(double));
  include(hn::LoadU(d, tail));
  range->least = hn::GetLane(hn::MinOfLanes(d, least));
  range->largest = hn::GetLane(hn::MaxOfLanes(d, largest));
  range->finite = range->finite && hn::AllTrue(d, hn::Eq(watch, hn::Zero(d)));
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

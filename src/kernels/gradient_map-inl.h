// The map of the backward pass: dx = fma(dy gamma, rstd, fma(-t, k2, -k1)) with t = (x - mean_hi) - mean_lo,
// k1 = c1 rstd and k2 = c2 rstd^2, for some columns of one row; and the same by wider steps where f32 cannot hold
// these. Included once per target.
#if defined(EVENORM_KERNELS_GRADIENT_MAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_GRADIENT_MAP_INL_H_
#undef EVENORM_KERNELS_GRADIENT_MAP_INL_H_
#else
#define EVENORM_KERNELS_GRADIENT_MAP_INL_H_
#endif

#include "kernels/apply-inl.h"
#include "kernels/gradient_functions.hpp"
#include "kernels/gradient_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// How the elements of a row's dx are made.
enum class MapBy { arithmetic, wider, scaling };

// A row's scalars in the arithmetic's type.
template <class A>
struct GradientMapScalars {
  A mean_hi, mean_lo, rstd, k2, minus_k1;
  MapBy by;
};

// The same of kMany rows, side by side.
template <class A, size_t kMany>
struct GradientMapArrays {
  HWY_ALIGN A mean_hi[kMany], mean_lo[kMany], rstd[kMany], k2[kMany], minus_k1[kMany];
};

// A wide number rounded to the arithmetic's type.
template <class D>
HWY_INLINE void StoreRounded(Plain<D> w, D, float* to) {
  const hn::Rebind<float, D> df;
  hn::StoreU(NarrowToF32(df, w.hi), df, to);
}
template <class D>
HWY_INLINE void StoreRounded(Paired<D> w, D d, double* to) {
  hn::StoreU(w.hi, d, to);
}

// The scalars of as many rows as D has lanes, to element `at` on. Returns the rows that the arithmetic's type can hold
// so: not where a mean is not finite; in f32 arithmetic not where rstd is far from 1, nor where k2 is subnormal, whose
// lost digits a large x - mean would show. (What is too large leaves a dx that is not finite.)
template <class D, class W, class A, size_t kMany, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<D> StoreGradientMap(D d, V mean_hi, V mean_lo, W rstd, const GradientMeans<W>& means, size_t at,
                                        GradientMapArrays<A, kMany>& to) {
  const W k2 = Multiply(d, Multiply(d, means.c2, rstd), rstd);
  StoreMapScalars<A>(d, mean_hi, mean_lo, rstd.hi, to.mean_hi + at, to.mean_lo + at, to.rstd + at);
  StoreRounded(k2, d, to.k2 + at);
  StoreRounded(Negate(d, Multiply(d, means.c1, rstd)), d, to.minus_k1 + at);
  const auto largest = hn::Set(d, std::numeric_limits<double>::max());
  const auto finite = hn::And(hn::Le(hn::Abs(means.c1.hi), largest), hn::Le(hn::Abs(means.c2.hi), largest));
  if constexpr (std::is_same_v<A, double>) {
    return finite;
  } else {
    const auto near_1 =
        hn::And(hn::Ge(rstd.hi, hn::Set(d, kLeastMapRstd)), hn::Le(rstd.hi, hn::Set(d, kLargestMapRstd)));
    const auto least = hn::Set(d, static_cast<double>(std::numeric_limits<float>::min()));
    const auto holds_k2 = hn::Or(hn::Ge(hn::Abs(k2.hi), least), hn::Eq(means.c2.hi, hn::Zero(d)));
    return hn::And(finite, hn::And(near_1, holds_k2));
  }
}

template <class A, class Norm>
HWY_INLINE GradientMapScalars<A> GradientMapOf(const GradientScalars& s, size_t cols) {
  const DScalar d;
  using W = Wide<A, DScalar>;
  const bool zero = s.rstd == 0 || (Norm::kCentred && cols == 1);
  if (zero && std::isfinite(s.c1_hi) && std::isfinite(s.c2_hi) && !s.scaled_map) return {};
  const auto wide = [&](double hi, double lo) HWY_ATTR { return W::From(d, hn::Set(d, hi), hn::Set(d, lo)); };
  GradientMapArrays<A, 1> map;
  const auto holds = StoreGradientMap(d, hn::Set(d, s.mean_hi), hn::Set(d, s.mean_lo), wide(s.rstd, s.rstd_lo),
                                      GradientMeans<W>{wide(s.c1_hi, s.c1_lo), wide(s.c2_hi, s.c2_lo)}, 0, map);
  const MapBy by = s.scaled_map                                         ? MapBy::scaling
                   : std::is_same_v<A, float> && hn::AllFalse(d, holds) ? MapBy::wider
                                                                        : MapBy::arithmetic;
  return {map.mean_hi[0], map.mean_lo[0], map.rstd[0], map.k2[0], map.minus_k1[0], by};
}

// In f64 arithmetic: would digits of k2 be lost below the range? Then dx is mapped by scaling.
HWY_INLINE bool LosesK2(const BlockSums<double>& sums, const GradientScalars& s) {
  const double c2 = std::fabs(s.c2_hi);
  const bool holds = c2 >= kLeastK2F64 && c2 * s.rstd * s.rstd >= kLeastK2F64;
  return hn::GetLane(sums.q.hi) != 0 && !holds;
}

template <class D, class V = hn::Vec<D>>
struct GradientMapVectors {
  V mean_hi, mean_lo, rstd, k2, minus_k1;

  template <class A>
  HWY_INLINE GradientMapVectors(D d, const GradientMapScalars<A>& s)
      : mean_hi(hn::Set(d, s.mean_hi)),
        mean_lo(hn::Set(d, s.mean_lo)),
        rstd(hn::Set(d, s.rstd)),
        k2(hn::Set(d, s.k2)),
        minus_k1(hn::Set(d, s.minus_k1)) {}

  // finite: stays 0 while dx is finite, else becomes NaN.
  HWY_INLINE V operator()(D d, V x, V dy, V gamma, V& finite) const {
    const V t = hn::Sub(hn::Sub(x, mean_hi), mean_lo);
    const V dx = Fma(d, hn::Mul(dy, gamma), rstd, Fma(d, hn::Neg(t), k2, minus_k1));
    finite = hn::MulAdd(dx, hn::Zero(d), finite);
    return dx;
  }
};

// Is all of dx finite that was mapped so far?
template <class A>
struct GradientWatch {
  using D = hn::ScalableTag<A>;

  HWY_INLINE GradientWatch() : even(hn::Zero(D())), odd(hn::Zero(D())) {}
  HWY_INLINE bool AllFinite() const {
    const D d;
    return hn::AllTrue(d, hn::Eq(hn::Add(even, odd), hn::Zero(d)));
  }

  hn::Vec<D> even, odd;  // 0, or NaN
};

// n columns. kStream: past the caches; dx is then aligned to a whole vector. What is not finite may be wrong in dx of a
// 16-bit type.
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
    const size_t j = i + kN;
    const auto a = map(d, LoadArithmetic(d, x + i), LoadArithmetic(d, dy + i), hn::LoadU(d, gamma + i), even);
    const auto b = map(d, LoadArithmetic(d, x + j), LoadArithmetic(d, dy + j), hn::LoadU(d, gamma + j), odd);
    StorePair<kStream>(a, b, d, dx + i);
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

// The scalars of kRowsAtOnce rows of f32 arithmetic, side by side.
class GradientGroup {
 public:
  // From the statistics in `rows` and the rows' sums. False, and nothing of use here, where one of them needs more than
  // f32 to be mapped.
  template <class Norm, class T>
  HWY_INLINE bool Set(const GradientRow<T>* rows, const BlockSums<float>* sums, size_t cols) {
    const D d;
    HWY_ALIGN double mean[kRowsAtOnce], rstd[kRowsAtOnce], g[kRowsAtOnce], gd[kRowsAtOnce];
    for (size_t r = 0; r < kRowsAtOnce; ++r) {
      mean[r] = rows[r].mean_hi;
      rstd[r] = rows[r].rstd;
      g[r] = hn::GetLane(sums[r].s.hi);
      gd[r] = hn::GetLane(sums[r].q.hi);
    }
    bool simple = true;
    for (size_t r = 0; r < kRowsAtOnce; r += hn::MaxLanes(d)) {
      using W = Plain<D>;
      const W scale{hn::Load(d, rstd + r)};
      const WideSums<W> of_rows{{hn::Load(d, g + r)}, {hn::Load(d, gd + r)}};
      const auto means = GradientMeansOf<Norm>(d, of_rows, scale, cols);
      const auto holds = StoreGradientMap(d, hn::Load(d, mean + r), hn::Zero(d), scale, means, r, map_);
      simple = simple && hn::AllTrue(d, holds);
    }
    return simple;
  }

  HWY_INLINE GradientMapScalars<float> Map(size_t r) const {
    return {map_.mean_hi[r], map_.mean_lo[r], map_.rstd[r], map_.k2[r], map_.minus_k1[r], MapBy::arithmetic};
  }

 private:
  using D = hn::CappedTag<double, kRowsAtOnce>;

  GradientMapArrays<float, kRowsAtOnce> map_;
};

// In f64, for f32 arithmetic: all n elements, or those that are not finite.
HWY_NOINLINE inline void MapWider(const GradientScalars& s, bool all, const float* x, const float* dy,
                                  const float* gamma, size_t n, float* dx) {
  const bool finite = std::isfinite(s.c1_hi) && std::isfinite(s.c2_hi);
  const double c1 = finite ? s.c1_hi : std::numeric_limits<double>::quiet_NaN();
  for (size_t i = 0; i < n; ++i) {
    if (!all && std::isfinite(LoadOne(dx + i))) continue;
    const double g = static_cast<double>(LoadOne(dy + i)) * static_cast<double>(LoadOne(gamma + i));
    const double xhat = (static_cast<double>(LoadOne(x + i)) - s.mean_hi) * s.rstd;
    const double value = ((g - c1) - xhat * s.c2_hi) * s.rstd;
    StoreOne(value != value ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(value), dx + i);
  }
}

// The same of a 16-bit type, by way of f32: what MapGradient() left not finite, or all.
template <class T>
HWY_NOINLINE void MapStaged(const GradientScalars& s, const GradientMapScalars<float>& map, const T* x, const T* dy,
                            const float* gamma, size_t n, T* dx) {
  constexpr size_t kAtOnce = 64;
  float wide_x[kAtOnce], wide_dy[kAtOnce], wide_dx[kAtOnce];
  GradientWatch<float> unused;
  for (size_t i = 0, count; i < n; i += count) {
    count = HWY_MIN(kAtOnce, n - i);
    Widen(x + i, wide_x, count);
    Widen(dy + i, wide_dy, count);
    const bool by_f64 = map.by == MapBy::wider;
    if (!by_f64) MapGradient<false>(map, wide_x, wide_dy, gamma + i, count, wide_dx, unused);
    MapWider(s, by_f64, wide_x, wide_dy, gamma + i, count, wide_dx);
    Narrow(wide_dx, dx + i, count);
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard

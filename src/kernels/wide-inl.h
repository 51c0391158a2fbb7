// Wide numbers in vectors: wide.inc, and joining lanes to one number. Knows nothing of rows. Included once per target.
#pragma once

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

#include "kernels/wide.inc"

// hi + lo, where sums of the high parts are exact: what biased accumulators hold.
template <class D_>
struct Parts {
  using D = D_;
  using V = hn::Vec<D>;
  V hi, lo;

  static HWY_INLINE Parts From(D, V hi, V lo) { return {hi, lo}; }
  HWY_INLINE V Low(D) const { return lo; }
};
template <class D>
HWY_INLINE Parts<D> Add(D, Parts<D> a, Parts<D> b) {
  return {hn::Add(a.hi, b.hi), hn::Add(a.lo, b.lo)};
}
template <class D>
HWY_INLINE Parts<D> Negate(D, Parts<D> a) {
  return {hn::Neg(a.hi), hn::Neg(a.lo)};
}
// The sum as a wide number.
template <class D>
HWY_INLINE Paired<D> Normalised(D d, Parts<D> a) {
  return TwoSum(d, a.hi, a.lo);
}
template <class W, class D>
HWY_INLINE W Normalised(D, W a) {
  return a;
}

// The lower and the upper half of a vector of numbers.
template <class D, template <class> class W>
HWY_INLINE W<D> Lower(D d, W<hn::Twice<D>> a) {
  return W<D>::From(d, hn::LowerHalf(d, a.hi), hn::LowerHalf(d, a.Low(hn::Twice<D>())));
}
#if HWY_TARGET != HWY_SCALAR
template <class D, template <class> class W>
HWY_INLINE W<D> Upper(D d, W<hn::Twice<D>> a) {
  return W<D>::From(d, hn::UpperHalf(d, a.hi), hn::UpperHalf(d, a.Low(hn::Twice<D>())));
}
#endif

// Applies a function of two vectors to each part of two numbers.
template <template <class> class W, class D, class F>
HWY_INLINE W<D> Both(const W<D>& a, const W<D>& b, const F& f) {
  return W<D>::From(D(), f(a.hi, b.hi), f(a.Low(D()), b.Low(D())));
}

// Subtracts the anchor, which a sum began with.
template <class D>
HWY_INLINE Parts<D> Without(const Paired<D>& sum, const Paired<D>& anchor) {
  return {hn::Sub(sum.hi, anchor.hi), sum.lo};
}

// Loads and stores wide numbers whose high parts are contiguous, with low parts `low` numbers further.
template <class W>
HWY_INLINE W LoadColumns(const double* values, size_t low, size_t i) {
  const DF64 d;
  return W::From(d, hn::LoadU(d, values + i), low == 0 ? hn::Zero(d) : hn::LoadU(d, values + low + i));
}
template <template <class> class W>
HWY_INLINE void StoreColumns(W<DF64> w, double* values, size_t low, size_t i) {
  const DF64 d;
  hn::StoreU(w.hi, d, values + i);
  if (low != 0) hn::StoreU(w.Low(d), d, values + low + i);
}

// Joins lanes l and l + N/2, then l and l + N/4, and so on, of one vector, to one lane.
template <template <class> class W, class D>
HWY_INLINE auto JoinLanes(D d, W<D> a) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(d) > 1) {
    const hn::Half<D> half;
    return JoinLanes(half, Add(half, Lower(half, a), Upper(half, a)));
  } else {  // D may have another name where Highway keeps more in its tags
    using One = hn::CappedTag<double, 1>;
    return W<One>::From(One(), a.hi, a.Low(d));
  }
#else
  (void)d;
  return a;
#endif
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// Wide numbers in vectors: wide.inc, and joining lanes to one number. Knows nothing of rows. Included once per target.
#pragma once

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

#include "kernels/wide.inc"

template <class D>
HWY_INLINE Plain<D> Lower(D d, Plain<hn::Twice<D>> a) {
  return {hn::LowerHalf(d, a.hi)};
}
template <class D>
HWY_INLINE Paired<D> Lower(D d, Paired<hn::Twice<D>> a) {
  return {hn::LowerHalf(d, a.hi), hn::LowerHalf(d, a.lo)};
}
#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE Plain<D> Upper(D d, Plain<hn::Twice<D>> a) {
  return {hn::UpperHalf(d, a.hi)};
}
template <class D>
HWY_INLINE Paired<D> Upper(D d, Paired<hn::Twice<D>> a) {
  return {hn::UpperHalf(d, a.hi), hn::UpperHalf(d, a.lo)};
}
#endif

// Applies a function of two vectors to each part of two numbers.
template <class D, class F>
HWY_INLINE Plain<D> Both(const Plain<D>& a, const Plain<D>& b, const F& f) {
  return {f(a.hi, b.hi)};
}
template <class D, class F>
HWY_INLINE Paired<D> Both(const Paired<D>& a, const Paired<D>& b, const F& f) {
  return {f(a.hi, b.hi), f(a.lo, b.lo)};
}

// Subtracts the anchor, which a sum began with; the sum is at most twice as large.
template <class D>
HWY_INLINE Paired<D> Without(const Paired<D>& sum, const Paired<D>& anchor) {
  return {hn::Sub(sum.hi, anchor.hi), sum.lo};
}

// Loads and stores wide numbers whose high parts are contiguous, with low parts `low` numbers further.
template <class W>
HWY_INLINE W LoadColumns(const double* values, size_t low, size_t i) {
  const DF64 d;
  return W::From(d, hn::LoadU(d, values + i), low == 0 ? hn::Zero(d) : hn::LoadU(d, values + low + i));
}
HWY_INLINE void StoreColumns(Plain<DF64> w, double* values, size_t, size_t i) {
  const DF64 d;
  hn::StoreU(w.hi, d, values + i);
}
HWY_INLINE void StoreColumns(Paired<DF64> w, double* values, size_t low, size_t i) {
  const DF64 d;
  hn::StoreU(w.hi, d, values + i);
  hn::StoreU(w.lo, d, values + low + i);
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

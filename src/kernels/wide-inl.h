// The arithmetic of the statistics: f64 for f32 and smaller types, double-double for f64. One set of names for both,
// so that sums, joins and the finishing of rows are written once. Additions and products are rounded one by one.
// Double-double: the error-free transformations of Knuth (TwoSum), Dekker (FastTwoSum) and the fma product.
// Included once per target.
#if defined(EVENORM_KERNELS_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_WIDE_INL_H_
#undef EVENORM_KERNELS_WIDE_INL_H_
#else
#define EVENORM_KERNELS_WIDE_INL_H_
#endif

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// One vector of f64: the wide numbers of f32 arithmetic. Products of two f32 are exact in it.
template <class D_>
struct Plain {
  using D = D_;
  using V = hn::Vec<D>;
  V hi;

  static HWY_INLINE Plain Zero(D d) { return {hn::Zero(d)}; }
  static HWY_INLINE Plain From(D, V hi, V) { return {hi}; }
  HWY_INLINE V Low(D d) const { return hn::Zero(d); }
};

// hi + lo with |lo| at most half an ulp of hi, once normalised: the wide numbers of f64 arithmetic.
template <class D_>
struct Paired {
  using D = D_;
  using V = hn::Vec<D>;
  V hi, lo;

  static HWY_INLINE Paired Zero(D d) { return {hn::Zero(d), hn::Zero(d)}; }
  static HWY_INLINE Paired From(D, V hi, V lo) { return {hi, lo}; }
  HWY_INLINE V Low(D) const { return lo; }
};

template <class A, class D>
using Wide = std::conditional_t<std::is_same_v<A, double>, Paired<D>, Plain<D>>;

// hi + lo = a + b exactly.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Paired<D> TwoSum(D, V a, V b) {
  const V hi = hn::Add(a, b);
  const V from_b = hn::Sub(hi, a);
  const V from_a = hn::Sub(hi, from_b);
  return {hi, hn::Add(hn::Sub(a, from_a), hn::Sub(b, from_b))};
}
// The same, for |a| >= |b|.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Paired<D> FastTwoSum(D, V a, V b) {
  const V hi = hn::Add(a, b);
  return {hi, hn::Sub(b, hn::Sub(hi, a))};
}
// hi + lo = a * b exactly.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Paired<D> TwoProduct(D d, V a, V b) {
  const V hi = hn::Mul(a, b);
  return {hi, Fma(d, a, b, hn::Neg(hi))};
}

template <class D>
HWY_INLINE Plain<D> Add(D, Plain<D> a, Plain<D> b) {
  return {hn::Add(a.hi, b.hi)};
}
template <class D>
HWY_INLINE Paired<D> Add(D d, Paired<D> a, Paired<D> b) {
  const auto sum = TwoSum(d, a.hi, b.hi);
  return FastTwoSum(d, sum.hi, hn::Add(sum.lo, hn::Add(a.lo, b.lo)));
}

template <class D>
HWY_INLINE Plain<D> Negate(D, Plain<D> a) {
  return {hn::Neg(a.hi)};
}
template <class D>
HWY_INLINE Paired<D> Negate(D, Paired<D> a) {
  return {hn::Neg(a.hi), hn::Neg(a.lo)};
}

template <class D>
HWY_INLINE Plain<D> Multiply(D, Plain<D> a, Plain<D> b) {
  return {hn::Mul(a.hi, b.hi)};
}
template <class D>
HWY_INLINE Paired<D> Multiply(D d, Paired<D> a, Paired<D> b) {
  const auto product = TwoProduct(d, a.hi, b.hi);
  const auto cross = hn::Add(hn::Mul(a.hi, b.lo), hn::Mul(a.lo, b.hi));
  return FastTwoSum(d, product.hi, hn::Add(product.lo, cross));
}

// By an f64 that is exact.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Plain<D> Divide(D, Plain<D> a, V n) {
  return {hn::Div(a.hi, n)};
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE Paired<D> Divide(D d, Paired<D> a, V n) {
  const V hi = hn::Div(a.hi, n);
  const V remainder = hn::Add(Fma(d, hn::Neg(hi), n, a.hi), a.lo);
  return FastTwoSum(d, hi, hn::Div(remainder, n));
}

// 1 / sqrt(a) in f64, for a > 0.
template <class D>
HWY_INLINE hn::Vec<D> ReciprocalSqrt(D d, Plain<D> a) {
  return hn::Div(hn::Set(d, 1.0), hn::Sqrt(a.hi));
}
// Twice what 1 / sqrt(a) is more than r, in units of r: Newton's residual 1 - a r^2, itself taken to twice the
// precision. By way of a r, the root, whose products are exact for every a.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NewtonResidual(D d, Paired<D> a, V r) {
  const auto root = TwoProduct(d, a.hi, r);
  const auto low = hn::Add(hn::Mul(root.lo, r), hn::Mul(hn::Mul(a.lo, r), r));
  return hn::Sub(Fma(d, hn::Neg(root.hi), r, hn::Set(d, 1.0)), low);
}
template <class D>
HWY_INLINE hn::Vec<D> ReciprocalSqrt(D d, Paired<D> a) {
  const auto r = hn::Div(hn::Set(d, 1.0), hn::Sqrt(a.hi));
  return Fma(d, hn::Mul(r, hn::Set(d, 0.5)), NewtonResidual(d, a, r), r);
}

// Element by element into lane sums: s += x, q += x^2. The low parts collect every rounding error.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AccumulateSum(D, Plain<D>& s, V x) {
  s.hi = hn::Add(s.hi, x);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AccumulateSum(D d, Paired<D>& s, V x) {
  const auto sum = TwoSum(d, s.hi, x);
  s = {sum.hi, hn::Add(s.lo, sum.lo)};
}
// x is an exact f32, so its square is exact and this is the same with and without fusing.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AccumulateSquare(D, Plain<D>& q, V x) {
  q.hi = hn::MulAdd(x, x, q.hi);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AccumulateSquare(D d, Paired<D>& q, V x) {
  const auto square = TwoProduct(d, x, x);
  const auto sum = TwoSum(d, q.hi, square.hi);
  q = {sum.hi, hn::Add(q.lo, hn::Add(sum.lo, square.lo))};
}

// x - k; products with an f64; and s += a b. One f64 operation each in f32 arithmetic, where only the sum is fused.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Plain<D> Difference(D, V x, Plain<D> k) {
  return {hn::Sub(x, k.hi)};
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE Paired<D> Difference(D d, V x, Paired<D> k) {
  const auto exact = TwoSum(d, x, hn::Neg(k.hi));
  return TwoSum(d, exact.hi, hn::Sub(exact.lo, k.lo));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE Plain<D> Times(D, Plain<D> a, V b) {
  return {hn::Mul(a.hi, b)};
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE Paired<D> Times(D d, Paired<D> a, V b) {
  const auto product = TwoProduct(d, a.hi, b);
  return FastTwoSum(d, product.hi, hn::Add(product.lo, hn::Mul(a.lo, b)));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AccumulateProduct(D d, Plain<D>& s, Plain<D> a, V b) {
  s.hi = Fma(d, a.hi, b, s.hi);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AccumulateProduct(D d, Paired<D>& s, Paired<D> a, V b) {
  const auto product = TwoProduct(d, a.hi, b);
  const auto sum = TwoSum(d, s.hi, product.hi);
  s = {sum.hi, hn::Add(s.lo, hn::Add(sum.lo, hn::Add(product.lo, hn::Mul(a.lo, b))))};
}
// The same for an a and b that are exact f32 in f32 arithmetic: then the product is exact, fused or not.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AccumulateExactProduct(D, Plain<D>& s, V a, V b) {
  s.hi = hn::MulAdd(a, b, s.hi);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void AccumulateExactProduct(D d, Paired<D>& s, V a, V b) {
  AccumulateProduct(d, s, Paired<D>{a, hn::Zero(d)}, b);
}

// The second look: s += (x - k), q += (x - k)^2. `keep` masks the columns that exist.
template <class D, class V = hn::Vec<D>, class M>
HWY_INLINE void AccumulateAbout(D d, Plain<D> k, M keep, V x, Plain<D>& s, Plain<D>& q) {
  (void)d;
  const V difference = hn::IfThenElseZero(keep, hn::Sub(x, k.hi));
  s.hi = hn::Add(s.hi, difference);
  q.hi = hn::Add(q.hi, hn::Mul(difference, difference));
}
template <class D, class V = hn::Vec<D>, class M>
HWY_INLINE void AccumulateAbout(D d, Paired<D> k, M keep, V x, Paired<D>& s, Paired<D>& q) {
  const auto exact = TwoSum(d, x, hn::Neg(k.hi));
  const auto difference = TwoSum(d, exact.hi, hn::Sub(exact.lo, k.lo));
  const V hi = hn::IfThenElseZero(keep, difference.hi);
  const V lo = hn::IfThenElseZero(keep, difference.lo);
  AccumulateSum(d, s, hi);
  s.lo = hn::Add(s.lo, lo);
  AccumulateSquare(d, q, hi);
  q.lo = hn::Add(q.lo, hn::Mul(hn::Add(hi, hi), lo));
}

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

// Sums of lanes 2p and 2p + 1, over a's lanes and then b's.
template <class D>
HWY_INLINE hn::Vec<D> Even(D d, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_TARGET == HWY_SCALAR
  (void)d, (void)b;
  return a;
#else
  return hn::ConcatEven(d, b, a);
#endif
}
template <class D>
HWY_INLINE hn::Vec<D> Odd(D d, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_TARGET == HWY_SCALAR
  (void)d, (void)a;
  return b;
#else
  return hn::ConcatOdd(d, b, a);
#endif
}
template <class D>
HWY_INLINE Plain<D> AddNeighbours(D d, Plain<D> a, Plain<D> b) {
  return Add(d, Plain<D>{Even(d, a.hi, b.hi)}, Plain<D>{Odd(d, a.hi, b.hi)});
}
template <class D>
HWY_INLINE Paired<D> AddNeighbours(D d, Paired<D> a, Paired<D> b) {
  return Add(d, Paired<D>{Even(d, a.hi, b.hi), Even(d, a.lo, b.lo)}, Paired<D>{Odd(d, a.hi, b.hi), Odd(d, a.lo, b.lo)});
}

// Joins lanes l and l + N/2, then l and l + N/4, ... of one vector, to one lane.
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

#endif  // include guard

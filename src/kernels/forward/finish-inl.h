// From a group's sums to its moments, and from moments to the scalars of the normalise step, for several rows at once.
// Also checks whether numbers are finite. Included once per target.
#pragma once

#include "kernels/formulas-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

using DGroup = hn::CappedTag<double, kMaxGroup>;

template <class D, class A>
HWY_INLINE MeanAndM2<hn::Vec<D>> MomentsOf(D d, const RowGroup<A>& g, size_t i) {
  return {hn::Load(d, g.mean + i), hn::Load(d, g.mean_lo + i), hn::Load(d, g.m2 + i)};
}

template <class A>
void FinishRows(RowGroup<A>& g, size_t rows, double columns, double eps) {
  const DGroup d;
  for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) {
    hn::Store(FinishMoments<A>(d, MomentsOf(d, g, i), columns, eps, g, i), d, g.flag + i);
  }
}

// From the sums of rows to their moments. Flags the rows that need a second pass, and returns true if there are some.
// D: the tag of as many rows at once; it affects no bit.
template <class D, class A>
HWY_INLINE bool ReplaceByMoments(D d, RowGroup<A>& g, size_t rows, const Count& count) {
  bool second_pass = false;
  for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) {
    const auto q = hn::Load(d, g.m2 + i);
    const auto moments = MomentsFromSums(d, SumsOfRows<hn::Vec<D>>{hn::Load(d, g.mean + i), q}, count);
    hn::Store(moments.mean, d, g.mean + i);
    hn::Store(moments.m2, d, g.m2 + i);
    const auto needs_second_pass = NeedsSecondPass<A>(d, moments.m2, q);
    hn::Store(hn::IfThenElseZero(needs_second_pass, hn::Set(d, 1.0)), d, g.flag + i);
    second_pass = !hn::AllFalse(d, needs_second_pass) || second_pass;
  }
  return second_pass;
}
template <class A>
bool FindMoments(RowGroup<A>& g, size_t rows, double columns) {
  return ReplaceByMoments(DGroup(), g, rows, columns);
}

// A group is finished in two steps, so that other work between them hides the time of the first step's roots and
// quotients. The first step goes from sums to moments and rstd. It returns true if some rows need a second pass, and
// flags them; in that case there is no second step. Neither step is inlined, because among rows no registers are free
// for it.
template <class D = DGroup, class A>
HWY_NOINLINE bool FinishStatistics(RowGroup<A>& g, size_t rows, const Count& count, double eps, bool centred) {
  const D d;
  const bool second_pass = centred && ReplaceByMoments(d, g, rows, count);
  for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) {
    hn::Store(RstdOf(d, MeanOf(d, hn::Load(d, g.m2 + i), count), hn::Set(d, eps)), d, g.rstd + i);
  }
  return second_pass;
}
// The second step: the scalars of the normalise step. Returns true if some rows are out of range, and flags them.
template <class D = DGroup, class A>
HWY_NOINLINE bool FinishNormScalars(RowGroup<A>& g, size_t rows, const Count& count, double eps) {
  const D d;
  bool any = false;
  for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) {
    const auto out_of_range = FinishScalars<A>(d, MomentsOf(d, g, i), hn::Load(d, g.rstd + i), count, eps, g, i);
    hn::Store(out_of_range, d, g.flag + i);
    any = any || !hn::AllTrue(d, hn::Eq(out_of_range, hn::Zero(d)));
  }
  return any;
}

template <class A>
bool FinishSums(RowGroup<A>& g, size_t rows, size_t cols, double eps, bool centred) {
  const Count count = static_cast<double>(cols);
  const bool second_pass = FinishStatistics(g, rows, count, eps, centred);
  if (!second_pass) FinishNormScalars(g, rows, count, eps);
  return second_pass;
}

// The sum of 0 * v is 0 if every v is finite, and NaN otherwise. There are eight sums because each is a chain of
// dependent additions. They are not an array, which would be cleared in memory, and this takes as long as a row.
template <class A>
bool AreFinite(const A* values, size_t n) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const auto zero = hn::Zero(d);
  auto s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero;
  size_t i = 0;
  const auto add = [&](auto& sum, size_t at) HWY_ATTR { sum = hn::MulAdd(hn::LoadU(d, values + at), zero, sum); };
  for (; i + 8 * kN <= n; i += 8 * kN) {
    add(s0, i), add(s1, i + kN), add(s2, i + 2 * kN), add(s3, i + 3 * kN);
    add(s4, i + 4 * kN), add(s5, i + 5 * kN), add(s6, i + 6 * kN), add(s7, i + 7 * kN);
  }
  for (; i + kN <= n; i += kN) add(s0, i);
  const auto low = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), high = hn::Add(hn::Add(s4, s5), hn::Add(s6, s7));
  A rest = 0;
  for (; i < n; ++i) rest += load_one(values + i) * A{0};
  return rest == A{0} && hn::AllTrue(d, hn::Eq(hn::Add(low, high), zero));
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

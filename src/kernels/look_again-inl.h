// The second look: sums of x - k and (x - k)^2, with k the mean that a row's sums about 0 gave, and moments from them.
// Included once per target.
#pragma once

#include "kernels/finish-inl.h"
#include "kernels/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The sums of n columns about k. Whole lanes alone stay in registers; with a tail, the lanes are in memory.
template <class T, class A = Arithmetic<T>>
HWY_INLINE FoldedSums<A, T> SumsAbout(const T* x, size_t n, const WideNumber& k) {
  const DF64 d;
  const auto wide_k = Wide<A, DF64>::From(d, hn::Set(d, k.hi), hn::Set(d, k.lo));
  const auto all = hn::Eq(hn::Zero(d), hn::Zero(d));
  const auto about_k = [=](hn::Vec<DF64> v, size_t, size_t, Wide<A, DF64>& s, Wide<A, DF64>& q)
                           HWY_ATTR { AccumulateAbout(d, wide_k, all, v, s, q); };
  if constexpr (std::is_same_v<A, float> && hn::MaxLanes(d) >= 4) {
    if (n % kLanes == 0) return LaneSums<A, T>::OfWholeLanes(x, n, about_k);
  }
  LaneSums<A, T> sums;
  sums.Begin(x, n);
  sums.Add(x, 0, n / kLanes * kLanes, about_k);
  sums.AddTail(x, n, [=](hn::Vec<DF64> v, size_t c, size_t vector, Wide<A, DF64>& s, Wide<A, DF64>& q) HWY_ATTR {
    const auto rest = hn::Set(d, static_cast<double>(n - c));
    AccumulateAbout(d, wide_k, hn::Lt(LaneSums<A, T>::Lanes(vector), rest), v, s, q);
  });
  return sums.Fold();
}

template <class T>
BlockSums SumAbout(const T* x, size_t n, const WideNumber& k) {
  const auto folded = SumsAbout(x, n, k);
  return {JoinFolded(folded.s), JoinFolded(folded.q)};
}

// Sums of up to kMaxGroup rows, side by side, and which of them are wanted.
template <class A>
struct SumsAboutOfRows {
  template <class D>
  HWY_INLINE WideSums<Wide<A, D>> of(D d, size_t i) const {
    return {Wide<A, D>::From(d, hn::Load(d, s_hi + i), hn::Load(d, s_lo + i)),
            Wide<A, D>::From(d, hn::Load(d, q_hi + i), hn::Load(d, q_lo + i))};
  }
  HWY_INLINE void Set(const WideSums<Wide<A, DF64>>& sums, size_t i) {
    const DF64 d;
    hn::StoreU(sums.s.hi, d, s_hi + i);
    hn::StoreU(sums.s.Low(d), d, s_lo + i);
    hn::StoreU(sums.q.hi, d, q_hi + i);
    hn::StoreU(sums.q.Low(d), d, q_lo + i);
  }

  alignas(64) double s_hi[kMaxGroup] = {}, s_lo[kMaxGroup] = {}, q_hi[kMaxGroup] = {}, q_lo[kMaxGroup] = {};
  alignas(64) double wanted[kMaxGroup] = {};
};

// The rows' sums about what the group has as their means.
template <class T, class A = Arithmetic<T>>
HWY_INLINE void SumAboutMeans(const SumRows<T>& rows, SumsAboutOfRows<A>& sums) {
  const RowGroup<A>& group = *rows.group;
  const auto folded = [&](size_t i) HWY_ATTR {
    const size_t at = rows.first + i;
    return SumsAbout(rows.x.at(i), rows.n, {group.mean_hi[at], group.mean_lo[at]});
  };
  size_t i = 0;
  constexpr size_t kN = hn::MaxLanes(DF64());
  LanesOfRows<T, true> lanes;
  for (size_t n; i + 1 < rows.rows && rows.first + i + kN <= kMaxGroup; i += n) {
    n = HWY_MIN(kN, rows.rows - i);
    for (size_t r = 0; r < n; ++r) lanes.Set(r, folded(i + r));
    for (size_t r = n; r < kN; ++r) lanes.Clear(r);
    sums.Set(lanes.JoinVector(0), rows.first + i);
  }
  for (; i < rows.rows; ++i) {
    const auto row = folded(i);
    const WideNumber s = JoinFolded(row.s), q = JoinFolded(row.q);
    const size_t at = rows.first + i;
    sums.s_hi[at] = s.hi, sums.s_lo[at] = s.lo, sums.q_hi[at] = q.hi, sums.q_lo[at] = q.lo;
  }
}

template <class T>
void LookAgain(const SumRows<T>& rows) {
  using A = Arithmetic<T>;
  const DGroup d;
  RowGroup<A>& group = *rows.group;
  SumsAboutOfRows<A> sums;
  SumAboutMeans(rows, sums);
  for (size_t i = rows.first; i < rows.first + rows.rows; ++i) sums.wanted[i] = group.flag[i];
  for (size_t i = 0; i < kMaxGroup; i += hn::MaxLanes(d)) {
    const auto n = static_cast<double>(rows.n);
    const auto moments = MomentsFromSumsAbout(d, MeansOf(d, group, i), sums.of(d, i), n);
    const auto is_wanted = hn::Ne(hn::Load(d, sums.wanted + i), hn::Zero(d));
    const auto replace = [&](double* values, hn::Vec<DGroup> by)
                             HWY_ATTR { hn::Store(hn::IfThenElse(is_wanted, by, hn::Load(d, values)), d, values); };
    replace(group.mean_hi + i, moments.mean.hi);
    replace(group.mean_lo + i, moments.mean.Low(d));
    replace(group.m2_hi + i, moments.m2.hi);
    replace(group.m2_lo + i, moments.m2.Low(d));
  }
}

// The `count` rows of turn `turn`, some of which want that, and then what finish() does. Returns whether there are
// extreme ones.
template <class T>
HWY_NOINLINE bool LookAtTurn(const ShortRows<T>& rows, size_t turn, size_t count) {
  auto& group = rows.groups[turn % kGroups];
  LookAgain<T>({{rows.x.at(turn * rows.group), rows.x.step}, count, rows.n, &group, 0});
  FinishRows(group, count, static_cast<double>(rows.n), rows.eps);
  return group.any_flag(count);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

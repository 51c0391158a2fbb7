// The second pass: sums of x - k and (x - k)^2, where k is the mean from a row's first pass, and moments from them.
// Included once per target.
#pragma once

#include "kernels/finish-inl.h"
#include "kernels/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The sums of n columns about k. Whole lanes stay in registers; with an incomplete last one, lanes are in memory.
template <class T>
HWY_INLINE FoldedSums<T> SumsAbout(const T* x, size_t n, double about) {
  const V64 k = hn::Set(DF64(), about);
  const auto add = [](V64 difference, V64& s, V64& q) HWY_ATTR {
    s = hn::Add(s, difference);
    q = hn::Add(q, hn::Mul(difference, difference));
  };
  const auto about_k = [=](V64 v, size_t, size_t, V64& s, V64& q) HWY_ATTR { add(hn::Sub(v, k), s, q); };
  if constexpr (hn::MaxLanes(DF64()) >= 4) {
    if (n % kLanes == 0) return LaneSums<T>::OfWholeLanes(x, n, about_k);
  }
  LaneSums<T> sums;
  sums.Clear();
  sums.Add(x, 0, n / kLanes * kLanes, about_k);
  sums.AddTail(x, n, [=](V64 v, size_t c, size_t vector, V64& s, V64& q) HWY_ATTR {
    const auto exists = hn::Lt(LaneSums<T>::Lanes(vector), hn::Set(DF64(), static_cast<double>(n - c)));
    add(hn::IfThenElseZero(exists, hn::Sub(v, k)), s, q);
  });
  return sums.Fold();
}

template <class T>
BlockSums SumAbout(const T* x, size_t n, double k) {
  const FoldedSums<T> folded = SumsAbout(x, n, k);
  return {JoinFolded(folded.s), JoinFolded(folded.q)};
}

// Sums rows about the means in the group, into the same places of `sums`.
template <class T, class A = Arithmetic<T>>
HWY_INLINE void SumAboutMeans(const SumRows<T>& rows, RowGroup<A>& sums) {
  const RowGroup<A>& group = *rows.group;
  const auto folded = [&](size_t i) HWY_ATTR { return SumsAbout(rows.x.at(i), rows.n, group.mean[rows.first + i]); };
  size_t i = 0;
  constexpr size_t kN = hn::MaxLanes(DF64());
  LanesOfRows<T, true> lanes;
  for (size_t n; i + 1 < rows.rows && rows.first + i + kN <= kMaxGroup; i += n) {
    n = HWY_MIN(kN, rows.rows - i);
    for (size_t r = 0; r < n; ++r) lanes.Set(r, folded(i + r));
    for (size_t r = n; r < kN; ++r) lanes.Clear(r);
    StoreSums(lanes.JoinVector(0), sums, rows.first + i);
  }
  for (; i < rows.rows; ++i) {
    const auto row = folded(i);
    sums.set(rows.first + i, JoinFolded(row.s), 0, JoinFolded(row.q));
  }
}

template <class T>
void SecondPass(const SumRows<T>& rows) {
  using A = Arithmetic<T>;
  const DGroup d;
  RowGroup<A>& group = *rows.group;
  RowGroup<A> sums;
  sums.clear_from(0);
  SumAboutMeans(rows, sums);
  for (size_t i = 0; i < kMaxGroup; ++i) sums.flag[i] = i - rows.first < rows.rows ? group.flag[i] : 0;
  for (size_t i = 0; i < kMaxGroup; i += hn::MaxLanes(d)) {
    const SumsOfRows<hn::Vec<DGroup>> about{hn::Load(d, sums.mean + i), hn::Load(d, sums.m2 + i)};
    const auto moments = MomentsFromSumsAbout<A>(d, hn::Load(d, group.mean + i), about, static_cast<double>(rows.n));
    const auto is_wanted = hn::Ne(hn::Load(d, sums.flag + i), hn::Zero(d));
    const auto replace = [&](double* values, hn::Vec<DGroup> by)
                             HWY_ATTR { hn::Store(hn::IfThenElse(is_wanted, by, hn::Load(d, values)), d, values); };
    replace(group.mean + i, moments.mean);
    replace(group.mean_lo + i, moments.mean_lo);
    replace(group.m2 + i, moments.m2);
  }
}

// The second pass of the `count` rows of group `stage`, then what finish() does. Returns true if some are out of range.
template <class T>
HWY_NOINLINE bool SecondPassOfGroup(const ShortRows<T>& rows, size_t stage, size_t count) {
  auto& group = rows.groups[stage % kGroups];
  SecondPass<T>({{rows.x.at(stage * rows.group), rows.x.step}, count, rows.n, &group, 0});
  FinishRows(group, count, static_cast<double>(rows.n), rows.eps);
  return group.any_flag(count);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// The second pass: sums of x - k and (x - k)^2, where k is the mean from a row's first pass, and moments from them.
// Included once per target.
#pragma once

#include "kernels/forward/finish-inl.h"
#include "kernels/forward/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The sums of n columns about k.
template <class T>
BlockSums SumAbout(const T* x, size_t n, double about) {
  const V64 k = hn::Set(DF64(), about);
  const auto add = [](V64 difference, V64& s, V64& q) HWY_ATTR {
    s = hn::Add(s, difference);
    q = hn::Add(q, hn::Mul(difference, difference));
  };
  const auto about_k = [=](V64 v, size_t, size_t, V64& s, V64& q) HWY_ATTR { add(hn::Sub(v, k), s, q); };
  LaneSums<T> sums;
  sums.Clear();
  const size_t whole = n / kLanes * kLanes;
  sums.Add(x, 0, whole, about_k);
  sums.AddTail(x, whole, n, [=](V64 v, size_t c, size_t vector, V64& s, V64& q) HWY_ATTR {
    const auto exists = hn::Lt(LaneSums<T>::Lanes(vector), hn::Set(DF64(), static_cast<double>(n - c)));
    add(hn::IfThenElseZero(exists, hn::Sub(v, k)), s, q);
  });
  return sums.Join();
}

// The second pass of those of the `count` rows of group t whose flags are set, then what finish() does. Returns
// true if some are out of range.
template <class T>
HWY_NOINLINE bool SecondPassOfGroup(const ShortRows<T>& rows, size_t t, size_t count) {
  auto& group = rows.groups[t % kGroups];
  const auto columns = static_cast<double>(rows.n);
  const hn::CappedTag<double, 1> d;
  for (size_t i = 0; i < count; ++i) {
    if (group.flag[i] == 0) continue;
    const double k = group.mean[i];
    const BlockSums sums = SumAbout(rows.x_of(t).at(i), rows.n, k);
    const SumsOfRows<hn::Vec<decltype(d)>> about{hn::Set(d, sums.s), hn::Set(d, sums.q)};
    const auto moments = MomentsFromSumsAbout<Arithmetic<T>>(d, hn::Set(d, k), about, columns);
    group.set(i, hn::GetLane(moments.mean), hn::GetLane(moments.mean_lo), hn::GetLane(moments.m2));
  }
  FinishRows(group, count, columns, rows.eps);
  return group.any_flag(count);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

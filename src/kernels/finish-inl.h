// From a group's sums to its moments, and from moments to what the map needs, rows side by side; and whether numbers
// are finite. Included once per target.
#pragma once

#include "kernels/formulas-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

using DGroup = hn::CappedTag<double, kMaxGroup>;

template <class A>
void FinishRows(RowGroup<A>& g, size_t rows, double columns, double eps) {
  const DGroup d;
  using W = Wide<A, DGroup>;
  for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) {
    const auto mean = W::From(d, hn::Load(d, g.mean_hi + i), hn::Load(d, g.mean_lo + i));
    const auto m2 = W::From(d, hn::Load(d, g.m2_hi + i), hn::Load(d, g.m2_lo + i));
    hn::Store(FinishMoments<A>(d, mean, m2, hn::Set(d, columns), eps, g, i), d, g.flag + i);
  }
}

// Has a group rows that want a second look, or, once finished, extreme ones?
struct GroupFlags {
  bool look, extreme;
};

template <class A>
EVENORM_INLINE_LOOP GroupFlags FinishGroup(RowGroup<A>& g, size_t rows, size_t cols, double eps, bool centred) {
  const DGroup d;
  using W = Wide<A, DGroup>;
  const auto count = hn::Set(d, static_cast<double>(cols));
  GroupFlags flags{false, false};
  HWY_ALIGN double extreme[kMaxGroup];
  for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) {
    const auto q = W::From(d, hn::Load(d, g.m2_hi + i), hn::Load(d, g.m2_lo + i));
    auto mean = W::From(d, hn::Load(d, g.mean_hi + i), hn::Load(d, g.mean_lo + i)), m2 = q;
    if (centred) {
      const auto moments = MomentsFromSums(d, WideSums<W>{mean, q}, cols);
      mean = moments.mean;
      m2 = moments.m2;
      hn::Store(mean.hi, d, g.mean_hi + i);
      hn::Store(mean.Low(d), d, g.mean_lo + i);
      hn::Store(m2.hi, d, g.m2_hi + i);
      hn::Store(m2.Low(d), d, g.m2_lo + i);
      const auto second_look = SecondLook<A>(d, m2, q);
      hn::Store(hn::IfThenElseZero(second_look, hn::Set(d, 1.0)), d, g.flag + i);
      flags.look = flags.look || !hn::AllFalse(d, second_look);
    }
    const auto is_extreme = FinishMoments<A>(d, mean, m2, count, eps, g, i);
    hn::Store(is_extreme, d, extreme + i);
    flags.extreme = flags.extreme || !hn::AllTrue(d, hn::Eq(is_extreme, hn::Zero(d)));
  }
  if (HWY_UNLIKELY(flags.look)) return flags;
  for (size_t i = 0; i < rows; i += hn::MaxLanes(d)) hn::Store(hn::Load(d, extreme + i), d, g.flag + i);
  return flags;
}

template <class A>
bool FinishSums(RowGroup<A>& g, size_t rows, size_t cols, double eps, bool centred) {
  return FinishGroup(g, rows, cols, eps, centred).look;
}

// 0 * v sums to 0 where every v is finite, to NaN otherwise. Four sums, since each is a chain.
template <class A>
bool AreFinite(const A* values, size_t n) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d), kSums = 4;
  hn::Vec<decltype(d)> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(d);
  size_t i = 0;
  for (; i + kSums * kN <= n; i += kSums * kN) {
    for (size_t s = 0; s < kSums; ++s) {
      sums[s] = hn::MulAdd(hn::LoadU(d, values + i + s * kN), hn::Zero(d), sums[s]);
    }
  }
  A rest = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  for (; i < n; ++i) rest += load_one(values + i) * A{0};
  return rest == A{0};
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

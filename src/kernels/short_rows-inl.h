// The pipeline of groups of short rows. Stage t normalises group t, finishes group t + 1 and sums group t + 2. The
// order affects no bit. Finishing overlaps with the normalise step, when sums have left the store buffer. Included once
// per target.
#pragma once

#include "kernels/finish-inl.h"
#include "kernels/narrow_rows-inl.h"
#include "kernels/normalise-inl.h"
#include "kernels/second_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Sums one group, normalises another, and calls between() in between. As many rows as both have are combined, and the
// rest follow separately. Narrow rows are summed first, then normalised.
template <class T, bool kCentred, class Between>
HWY_INLINE void NormaliseAndSumGroups(const NormaliseRows<T>& current, const SumRows<T>& next, const Between& between) {
  const size_t both = current.n > kStep ? HWY_MIN(current.rows, next.rows) : 0;
  if (both != 0) NormaliseAndSumRows<T, kCentred>(current, next, both);
  if (both != next.rows) SumRowsFrom<T, kCentred>(next, both);
  between();
  NormaliseRowsFrom(current, both);
}

// The pipeline for groups of a few rows that are followed by two others. One loop normalises a row and sums another
// one. The group between theirs is finished meanwhile, so that all three groups are in L1. Returns the next stage.
// `out_of_range` is set if its group has an out-of-range row, which ends the pipeline.
template <class T, bool kCentred>
HWY_NOINLINE size_t PipelineOfFewRows(const ShortRows<T>& rows, size_t stage, bool* out_of_range) {
  using D = hn::CappedTag<double, kFewRows>;
  const size_t n = rows.n, group = rows.group;
  const Count columns = static_cast<double>(n);
  for (size_t g = 0; g < kGroups; ++g) rows.groups[g].clear_from(group);
  for (bool second_pass = false; (stage + 3) * group <= rows.count && !*out_of_range; ++stage) {
    auto &next = rows.groups[(stage + 1) % kGroups], &later = rows.groups[(stage + 2) % kGroups];
    const auto& scalars_of_rows = rows.groups[stage % kGroups].scalars;
    for (size_t r = 0; r < group; ++r) {
      const T *x = rows.x.at(stage * group + r), *later_x = rows.x.at((stage + 2) * group + r);
      T* y = EvenRows<T>{rows.y_of(stage), rows.y.step}.at(r);
      const auto prefetch = [&](size_t c, size_t width) HWY_ATTR {
        if (rows.ahead != 0) PrefetchBehind(later_x + c, width * sizeof(T), rows.ahead);
      };
      if (r == 0) second_pass = FinishStatistics<D>(next, group, columns, rows.eps, kCentred);
      if (r == 1) {
        *out_of_range = HWY_UNLIKELY(second_pass) ? SecondPassOfGroup(rows, stage + 1, group)
                                                  : FinishNormScalars<D>(next, group, columns, rows.eps);
      }
      LaneSums<T> sums;
      sums.Clear();
      const NormScalars<Arithmetic<T>> scalars = scalars_of_rows.of(r);
      const Affine<Arithmetic<T>> affine{rows.gamma, rows.beta};
      NormaliseRowBesideSums<kCentred>(scalars, x, affine, n, y, later_x, prefetch, sums);
      const BlockSums joined = sums.Join();
      later.set(r, joined.s, 0, joined.q);
    }
    if (rows.normalised != nullptr) rows.normalised(rows.context, stage);
    if (rows.finished != nullptr && !*out_of_range) rows.finished(rows.context, stage + 1);
  }
  return stage;
}

template <class T, bool kCentred>
size_t PipelineOfShortRows(const ShortRows<T>& rows, size_t stage) {
  const size_t group = rows.group;
  const Count columns = static_cast<double>(rows.n);
  const auto rows_of = [&](size_t t)
                           HWY_ATTR { return t * group < rows.count ? HWY_MIN(group, rows.count - t * group) : 0; };
  const auto group_of = [&](size_t t) HWY_ATTR { return rows.groups + t % kGroups; };
  bool out_of_range = false;
  if constexpr (kNormalisesBesideSums) {
    if (rows.few && rows_of(stage + 2) == group) stage = PipelineOfFewRows<T, kCentred>(rows, stage, &out_of_range);
    if (rows.n <= kStep && group == kMaxGroup && rows.terms.r.first == nullptr) {
      stage = NarrowPipeline<T, kCentred>(rows).Run(stage, &out_of_range);
    }
  }
  for (; !out_of_range && rows_of(stage) != 0; ++stage) {
    auto& next = *group_of(stage + 1);
    const size_t next_rows = rows_of(stage + 1), later_row = (stage + 2) * group, later_rows = rows_of(stage + 2);
    bool second_pass = false;
    if (next_rows != 0) {
      if (next_rows < kMaxGroup) next.clear_from(next_rows);
      second_pass = FinishStatistics(next, next_rows, columns, rows.eps, kCentred);
      if (HWY_UNLIKELY(second_pass)) out_of_range = SecondPassOfGroup(rows, stage + 1, next_rows);
    }
    const EvenRows<const T> x{rows.x.at(stage * group), rows.x.step};
    const EvenRows<T> y{rows.y_of(stage), rows.y.step};
    const NormaliseRows<T> current{
        x, y, rows_of(stage), rows.n, {rows.gamma, rows.beta}, &group_of(stage)->scalars, 0, rows.stream, {}, false};
    const auto& terms = rows.terms;
    const TermRows<T> later_terms{{terms.x.at(later_row), terms.x.step},
                                  {terms.r.first == nullptr ? nullptr : terms.r.at(later_row), terms.r.step},
                                  terms.scale};
    const EvenRows<const T> later_x{rows.x.at(later_row), rows.x.step};
    const SumRows<T> later{later_x, later_rows, rows.n, group_of(stage + 2), 0, rows.ahead, later_terms};
    NormaliseAndSumGroups<T, kCentred>(current, later, [&]() HWY_ATTR {
      if (next_rows != 0 && !second_pass) out_of_range = FinishNormScalars(next, next_rows, columns, rows.eps);
    });
    if (rows.normalised != nullptr) rows.normalised(rows.context, stage);
    if (rows.finished != nullptr && next_rows != 0 && !out_of_range) rows.finished(rows.context, stage + 1);
  }
  return stage;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

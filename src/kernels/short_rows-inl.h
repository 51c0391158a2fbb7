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

// Normalises a group of rows so narrow that gamma and beta would be most of what is read: by columns, then by rows. All
// pointers that the loops use are copied first, because y may alias their memory.
template <bool kCentred, bool kStream, class A, class T>
HWY_NOINLINE void NormaliseNarrowRowsSo(const NormaliseRows<T>& current) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const size_t rows = current.rows, whole = current.n / kNormaliseStep * kNormaliseStep;
  const Affine<A> affine = current.affine;
  const auto x_step = static_cast<uintptr_t>(current.x.step), y_step = static_cast<uintptr_t>(current.y.step);
  const NormScalarsOfRows<A>& scalars = *current.scalars;
  const A *centre = scalars.centre + current.first, *offset = scalars.offset + current.first,
          *rstd = scalars.rstd + current.first;
  for (size_t i = 0; i < whole; i += 2 * kN) {
    const auto gammas = LoadPair(d, affine.gamma_at(i)), betas = LoadPair(d, affine.beta_at(i));
    auto x = reinterpret_cast<uintptr_t>(current.x.first + i), y = reinterpret_cast<uintptr_t>(current.y.first + i);
#pragma GCC unroll 2
    for (size_t row = 0; row < rows; ++row, x += x_step, y += y_step) {
      const NormaliseVectors<kCentred, decltype(d)> vectors(d, NormScalars<A>{centre[row], offset[row], rstd[row]});
      vectors.template NormalisePair<kStream>(d, reinterpret_cast<const T*>(x), gammas, betas, reinterpret_cast<T*>(y));
    }
  }
  if (current.n % kNormaliseStep == 0) return;
  for (size_t row = 0; row < rows; ++row) {
    NormaliseTail(scalars.of(current.first + row), current.x.at(row), affine, current.n, current.y.at(row));
  }
}
// current.first must be 0.
template <class T>
HWY_INLINE void NormaliseNarrowRows(const NormaliseRows<T>& current) {
  using A = Arithmetic<T>;
  const bool centred = !HWY_NATIVE_FMA || AnyCentre(*current.scalars, current.rows);
  // Non-temporal stores need whole cache lines, or go row by row: lines that several rows leave incomplete are slow.
  constexpr bool kWholeLines = 2 * hn::MaxLanes(hn::ScalableTag<A>()) * sizeof(T) >= 64;
  if (current.stream && !kWholeLines) {
    for (size_t row = 0; row < current.rows; ++row) NormaliseRow(current, row, 0);
    return;
  }
  bool stream = kWholeLines && current.stream && current.n % kNormaliseStep == 0;
  for (size_t row = 0; stream && row < current.rows; ++row) stream = IsAlignedToVector(current.y.at(row));
  if (kWholeLines && stream) {
    centred ? NormaliseNarrowRowsSo<true, kWholeLines, A>(current)
            : NormaliseNarrowRowsSo<false, kWholeLines, A>(current);
  } else {
    centred ? NormaliseNarrowRowsSo<true, false, A>(current) : NormaliseNarrowRowsSo<false, false, A>(current);
  }
}

// Sums one group, normalises another, and calls between() in between. As many rows as both have are combined, and the
// rest follow separately. Narrow rows are summed first, then normalised.
template <class T, bool kCentred, class Between>
HWY_INLINE void NormaliseAndSumGroups(const NormaliseRows<T>& current, const SumRows<T>& next, const Between& between) {
  const size_t normalised = current.n / kStep * kStep, both = current.n > kStep ? HWY_MIN(current.rows, next.rows) : 0;
  if (both != 0) NormaliseAndSumRows<T, kCentred>(current, next, {}, both, normalised);
  if (both != next.rows) SumRowsFrom<T, kCentred>(next, both);
  between();
  if (current.n <= kStep) return NormaliseNarrowRows(current);
  for (size_t i = both; i < current.rows; ++i) NormaliseRow(current, i, 0);
}

// The pipeline for groups of a few rows that are followed by two others. One loop normalises a row and sums another
// one. The group between theirs is finished meanwhile, so that all three groups are in L1. Returns the next stage.
// `out_of_range` is set if its group has an out-of-range row, which ends the pipeline.
template <class T, bool kCentred>
HWY_NOINLINE size_t PipelineOfFewRows(const ShortRows<T>& rows, size_t stage, bool* out_of_range) {
  using D = hn::CappedTag<double, kFewRows>;
  const size_t n = rows.n, normalised = n / kStep * kStep, group = rows.group;
  const Count columns = static_cast<double>(n);
  for (size_t g = 0; g < kGroups; ++g) rows.groups[g].clear_from(group);
  for (bool second_pass = false; (stage + 3) * group <= rows.count && !*out_of_range; ++stage) {
    auto &next = rows.groups[(stage + 1) % kGroups], &later = rows.groups[(stage + 2) % kGroups];
    const auto& scalars_of_rows = rows.groups[stage % kGroups].scalars;
    for (size_t r = 0; r < group; ++r) {
      const T *x = rows.x.at(stage * group + r), *later_x = rows.x.at((stage + 2) * group + r);
      T* y = EvenRows<T>{rows.y_of(stage), rows.y.step}.at(r);
      const auto before = [&](size_t c) HWY_ATTR {
        if (rows.ahead != 0) PrefetchBehind(later_x + c, kStep * sizeof(T), rows.ahead);
        if (c != 0) return;
        if (r == 0) {
          second_pass = FinishStatistics<D>(next, group, columns, rows.eps, kCentred);
        } else if (r == 1 && !second_pass) {
          *out_of_range = FinishNormScalars<D>(next, group, columns, rows.eps);
        }
      };
      if (HWY_UNLIKELY(r == 1 && second_pass)) *out_of_range = SecondPassOfGroup(rows, stage + 1, group);
      LaneSums<T> sums;
      sums.Clear();
      const NormScalars<Arithmetic<T>> scalars = scalars_of_rows.of(r);
      const Affine<Arithmetic<T>> affine{rows.gamma, rows.beta};
      NormaliseStepsBesideSums<kCentred>(scalars, x, affine, normalised, y, later_x, before, sums);
      if (normalised != n) {
        SumAndNormaliseRest<kCentred>(later_x, sums, scalars, x, affine, normalised, n, y);
      }
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
  }
  if constexpr (kHasNarrowPipeline<T>) {
    if (takes_narrow_pipeline<T>(rows.n) && group == kMaxGroup && rows.terms.r.first == nullptr) {
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

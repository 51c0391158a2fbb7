// Groups of short rows. In step t, group t is summed, group t - 1 finished and group t - 2 normalised. The order
// affects no bit. Finishing overlaps with the normalise step, when sums have left the store buffer. Included once per
// target.
#pragma once

#include "kernels/forward/finish-inl.h"
#include "kernels/forward/narrow_rows-inl.h"
#include "kernels/forward/normalise-inl.h"
#include "kernels/forward/second_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Sums one group, normalises another, and calls between() in between. As many rows as both have are combined, and the
// rest follow separately. Narrow rows are summed first, then normalised.
template <class T, bool kCentred, class Between>
HWY_INLINE void NormaliseAndSumGroups(const NormaliseRows<T>& normalised, const SumRows<T>& summed,
                                      const Between& between) {
  const size_t both = normalised.n > kStep ? HWY_MIN(normalised.rows, summed.rows) : 0;
  if (both != 0) NormaliseAndSumRows<T, kCentred>(normalised, summed, both);
  if (both != summed.rows) SumRowsFrom<T, kCentred>(summed, both);
  between();
  if (both != normalised.rows) NormaliseRowsFrom(normalised, both);
}

// The loop for full groups of a few rows. One loop normalises a row and sums another one. The group between theirs is
// finished meanwhile, so that all three groups are in L1. See NarrowRows::Run().
template <class T, bool kCentred>
HWY_NOINLINE size_t NormaliseFewRows(const ShortRows<T>& rows, size_t t, bool* out_of_range) {
  using D = hn::CappedTag<double, kFewRows>;
  const size_t n = rows.n, group = rows.group;
  const Count columns = static_cast<double>(n);
  const GroupCalls& calls = rows.calls;
  const Affine<Arithmetic<T>> affine{rows.gamma, rows.beta};
  for (size_t g = 0; g < kGroups; ++g) rows.groups[g].clear_from(group);
  for (bool second_pass = false; (t + 1) * group <= rows.count && !*out_of_range; ++t) {
    if (calls.open != nullptr) calls.open(calls.context, t);
    auto &finished = rows.groups[(t - 1) % kGroups], &summed = rows.groups[t % kGroups];
    const auto& scalars_of_rows = rows.groups[(t - 2) % kGroups].scalars;
    const EvenRows<const T> x = rows.x_of(t - 2), summed_x = rows.x_of(t);
    const EvenRows<T> y = rows.y_of(t - 2);
    for (size_t r = 0; r < group; ++r) {
      const T* summed_row = summed_x.at(r);
      const auto prefetch = [&](size_t c, size_t width) HWY_ATTR {
        if (rows.ahead != 0) PrefetchBehind(summed_row + c, width * sizeof(T), rows.ahead);
      };
      if (r == 0) second_pass = FinishStatistics<D>(finished, group, columns, rows.eps, kCentred);
      if (r + 1 == HWY_MIN(group, 2)) {
        *out_of_range = HWY_UNLIKELY(second_pass) ? SecondPassOfGroup(rows, t - 1, group)
                                                  : FinishNormScalars<D>(finished, group, columns, rows.eps);
      }
      LaneSums<T> sums;
      sums.Clear();
      NormaliseRowBesideSums<kCentred>(scalars_of_rows.of(r), x.at(r), affine, n, y.at(r), summed_row, prefetch, sums);
      const BlockSums joined = sums.Join();
      summed.set(r, joined.s, 0, joined.q);
    }
    if (calls.finished != nullptr) calls.finished(calls.context, t - 1);
    if (calls.close != nullptr) calls.close(calls.context, t - 2);
  }
  return t;
}

// Step t. rare: group t - 2 has a row that is out of range. Returns whether group t - 1 has.
template <class T, bool kCentred>
bool StepOfGroups(const ShortRows<T>& rows, size_t t, bool rare) {
  const GroupCalls& calls = rows.calls;
  const size_t summed_rows = rows.rows_of(t), finished_rows = t < 1 ? 0 : rows.rows_of(t - 1);
  const size_t normalised_rows = t < 2 ? 0 : rows.rows_of(t - 2);
  if (summed_rows != 0 && calls.open != nullptr) calls.open(calls.context, t);
  const Count columns = static_cast<double>(rows.n);
  auto& finished = rows.groups[(t + kGroups - 1) % kGroups];
  bool second_pass = false, finished_is_rare = false;
  if (finished_rows != 0) {
    if (finished_rows < kMaxGroup) finished.clear_from(finished_rows);
    second_pass = FinishStatistics(finished, finished_rows, columns, rows.eps, kCentred);
    if (HWY_UNLIKELY(second_pass)) finished_is_rare = SecondPassOfGroup(rows, t - 1, finished_rows);
  }
  const SumRows<T> summed{rows.x_of(t), summed_rows,     rows.n, rows.groups + t % kGroups, 0,
                          rows.ahead,   rows.terms_of(t)};
  const NormaliseRows<T> normalised{rows.x_of(t - 2),
                                    rows.y_of(t - 2),
                                    rare ? 0 : normalised_rows,
                                    rows.n,
                                    {rows.gamma, rows.beta},
                                    &rows.groups[(t + kGroups - 2) % kGroups].scalars,
                                    0,
                                    rows.stream,
                                    rows.copy_of(t - 2),
                                    rows.stream_copy};
  NormaliseAndSumGroups<T, kCentred>(normalised, summed, [&] {
    if (finished_rows == 0 || second_pass) return;
    finished_is_rare = FinishNormScalars(finished, finished_rows, columns, rows.eps);
  });
  if (finished_rows != 0 && calls.finished != nullptr) calls.finished(calls.context, t - 1);
  if (rare) {
    calls.rare(calls.context, t - 2);
  } else if (normalised_rows != 0 && calls.close != nullptr) {
    calls.close(calls.context, t - 2);
  }
  return finished_is_rare;
}

template <class T, bool kCentred>
void NormaliseShortRows(const ShortRows<T>& rows) {
  const size_t steps = (rows.count + rows.group - 1) / rows.group + 2;
  bool rare = false;
  for (size_t t = 0; t < steps; ++t) {
    if constexpr (kNormalisesBesideSums) {
      if (t >= 2 && !rare && rows.rows_of(t) == rows.group) {
        if (rows.loop == GroupLoop::few) t = NormaliseFewRows<T, kCentred>(rows, t, &rare);
        if (rows.loop == GroupLoop::narrow) t = NarrowRows<T, kCentred>(rows).Run(t, &rare);
      }
    }
    rare = StepOfGroups<T, kCentred>(rows, t, rare);
  }
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// The pipeline of groups of short rows: one group is normalised, the next one finished, the next but one summed. The
// order affects no bit. Finishing overlaps with the normalise step, when sums have left the store buffer. Included once
// per target.
#pragma once

#include "kernels/finish-inl.h"
#include "kernels/map-inl.h"
#include "kernels/narrow_rows-inl.h"
#include "kernels/second_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Normalises a group of rows so narrow that gamma and beta would be most of what is read: by columns, then by rows. All
// pointers that the loops use are copied first, because y may alias their memory.
template <bool kCentred, bool kStream, class A, class T>
HWY_NOINLINE void MapNarrowRowsSo(const MapRows<T>& map) {
  const hn::ScalableTag<A> d;
  constexpr size_t kN = hn::MaxLanes(d);
  const size_t rows = map.rows, whole = map.n / kMapStep * kMapStep;
  const A *gamma = map.gamma, *beta = map.beta;
  const auto x_step = static_cast<uintptr_t>(map.x.step), y_step = static_cast<uintptr_t>(map.y.step);
  const MapScalarsOfRows<A>& scalars = *map.scalars;
  const A *centre = scalars.centre + map.first, *offset = scalars.offset + map.first, *rstd = scalars.rstd + map.first;
  for (size_t i = 0; i < whole; i += 2 * kN) {
    const auto gammas = LoadPair(d, gamma + i), betas = LoadPair(d, beta + i);
    auto x = reinterpret_cast<uintptr_t>(map.x.first + i), y = reinterpret_cast<uintptr_t>(map.y.first + i);
#pragma GCC unroll 2
    for (size_t row = 0; row < rows; ++row, x += x_step, y += y_step) {
      const MapVectors<kCentred, decltype(d)> vectors(d, MapScalars<A>{centre[row], offset[row], rstd[row]});
      vectors.template MapPair<kStream>(d, reinterpret_cast<const T*>(x), gammas, betas, reinterpret_cast<T*>(y));
    }
  }
  if (map.n % kMapStep == 0) return;
  for (size_t row = 0; row < rows; ++row) {
    MapTail(scalars.of(map.first + row), map.x.at(row), gamma, beta, map.n, map.y.at(row));
  }
}
// map.first must be 0.
template <class T>
HWY_INLINE void MapNarrowRows(const MapRows<T>& map) {
  using A = Arithmetic<T>;
  const bool centred = !HWY_NATIVE_FMA || AnyCentre(*map.scalars, map.rows);
  // Non-temporal stores need whole cache lines, or go row by row: lines that several rows leave incomplete are slow.
  constexpr bool kWholeLines = 2 * hn::MaxLanes(hn::ScalableTag<A>()) * sizeof(T) >= 64;
  if (map.stream && !kWholeLines) {
    for (size_t row = 0; row < map.rows; ++row) MapRow(map, row, 0);
    return;
  }
  bool stream = kWholeLines && map.stream && map.n % kMapStep == 0;
  for (size_t row = 0; stream && row < map.rows; ++row) stream = IsAlignedToVector(map.y.at(row));
  if (kWholeLines && stream) {
    centred ? MapNarrowRowsSo<true, kWholeLines, A>(map) : MapNarrowRowsSo<false, kWholeLines, A>(map);
  } else {
    centred ? MapNarrowRowsSo<true, false, A>(map) : MapNarrowRowsSo<false, false, A>(map);
  }
}

// Sums one group, normalises another, and calls between() in between. As many rows as both have are combined, and the
// rest follow separately. Narrow rows are summed first, then normalised.
template <class T, bool kCentred, class Between>
HWY_INLINE void MapAndSumGroups(const MapRows<T>& map, const SumRows<T>& next, const Between& between) {
  const size_t mapped = map.n / kStep * kStep, both = map.n > kStep ? HWY_MIN(map.rows, next.rows) : 0;
  if (both != 0) MapAndSumRows<T, kCentred>(map, next, {}, both, mapped);
  if (both != next.rows) SumRowsFrom<T, kCentred>(next, both);
  between();
  if (map.n <= kStep) return MapNarrowRows(map);
  for (size_t i = both; i < map.rows; ++i) MapRow(map, i, 0);
}

// The pipeline for groups of a few rows that are followed by two others. One loop normalises a row
// and sums another one. The group between theirs is finished meanwhile, so that all three groups are in L1. Returns the
// next turn. `extreme` is set if its group has an out-of-range row, which ends the pipeline.
template <class T, bool kCentred>
HWY_NOINLINE size_t TurnsOfFewRows(const ShortRows<T>& rows, size_t turn, bool* extreme) {
  using D = hn::CappedTag<double, kFewRows>;
  const size_t n = rows.n, mapped = n / kStep * kStep, group = rows.group;
  const Count columns = static_cast<double>(n);
  for (size_t g = 0; g < kGroups; ++g) rows.groups[g].clear_from(group);
  for (bool second_pass = false; (turn + 3) * group <= rows.count && !*extreme; ++turn) {
    auto &next = rows.groups[(turn + 1) % kGroups], &later = rows.groups[(turn + 2) % kGroups];
    const auto& scalars_of_rows = rows.groups[turn % kGroups].map;
    for (size_t r = 0; r < group; ++r) {
      const T *x = rows.x.at(turn * group + r), *later_x = rows.x.at((turn + 2) * group + r);
      T* y = EvenRows<T>{rows.y_of(turn), rows.y.step}.at(r);
      const auto before = [&](size_t c) HWY_ATTR {
        if (rows.ahead != 0) FetchBehind(later_x + c, kStep * sizeof(T), rows.ahead);
        if (c != 0) return;
        if (r == 0) {
          second_pass = FinishStatistics<D>(next, group, columns, rows.eps, kCentred);
        } else if (r == 1 && !second_pass) {
          *extreme = FinishMaps<D>(next, group, columns, rows.eps);
        }
      };
      if (HWY_UNLIKELY(r == 1 && second_pass)) *extreme = SecondPassOfTurn(rows, turn + 1, group);
      SumsAboutZero<T, kCentred> sums;
      sums.Begin(later_x, n);
      const MapScalars<Arithmetic<T>> scalars = scalars_of_rows.of(r);
      MapStepsBesideSums<kCentred>(scalars, x, rows.gamma, rows.beta, mapped, y, later_x, before, sums);
      if (mapped != n) {
        SumAndMapRest<kCentred>(later_x, sums, scalars, x, rows.gamma, rows.beta, mapped, n, y);
      }
      const BlockSums joined = sums.Join();
      later.set(r, joined.s, joined.q);
    }
    if (rows.mapped != nullptr) rows.mapped(rows.context, turn);
    if (rows.finished != nullptr && !*extreme) rows.finished(rows.context, turn + 1);
  }
  return turn;
}

template <class T, bool kCentred>
size_t TurnsOfShortRows(const ShortRows<T>& rows, size_t turn) {
  const size_t group = rows.group;
  const Count columns = static_cast<double>(rows.n);
  const auto rows_of = [&](size_t t)
                           HWY_ATTR { return t * group < rows.count ? HWY_MIN(group, rows.count - t * group) : 0; };
  const auto group_of = [&](size_t t) HWY_ATTR { return rows.groups + t % kGroups; };
  bool extreme = false;
  if constexpr (kMapsBesideSums) {
    if (rows.few && rows_of(turn + 2) == group) turn = TurnsOfFewRows<T, kCentred>(rows, turn, &extreme);
  }
  if constexpr (kHasNarrowTurns<T>) {
    if (takes_narrow_turns<T>(rows.n) && group == kMaxGroup && rows.terms.r.first == nullptr) {
      turn = NarrowTurns<T, kCentred>(rows).Run(turn, &extreme);
    }
  }
  for (; !extreme && rows_of(turn) != 0; ++turn) {
    auto& next = *group_of(turn + 1);
    const size_t next_rows = rows_of(turn + 1), later_row = (turn + 2) * group, later_rows = rows_of(turn + 2);
    bool second_pass = false;
    if (next_rows != 0) {
      if (next_rows < kMaxGroup) next.clear_from(next_rows);
      second_pass = FinishStatistics(next, next_rows, columns, rows.eps, kCentred);
      if (HWY_UNLIKELY(second_pass)) extreme = SecondPassOfTurn(rows, turn + 1, next_rows);
    }
    const EvenRows<const T> x{rows.x.at(turn * group), rows.x.step};
    const EvenRows<T> y{rows.y_of(turn), rows.y.step};
    const MapRows<T> map{x,           y,  rows_of(turn), rows.n, rows.gamma, rows.beta, &group_of(turn)->map, 0,
                         rows.stream, {}, false};
    const auto& terms = rows.terms;
    const TermRows<T> later_terms{{terms.x.at(later_row), terms.x.step},
                                  {terms.r.first == nullptr ? nullptr : terms.r.at(later_row), terms.r.step},
                                  terms.scale};
    const EvenRows<const T> later_x{rows.x.at(later_row), rows.x.step};
    const SumRows<T> later{later_x, later_rows, rows.n, group_of(turn + 2), 0, rows.ahead, later_terms};
    MapAndSumGroups<T, kCentred>(map, later, [&]() HWY_ATTR {
      if (next_rows != 0 && !second_pass) extreme = FinishMaps(next, next_rows, columns, rows.eps);
    });
    if (rows.mapped != nullptr) rows.mapped(rows.context, turn);
    if (rows.finished != nullptr && next_rows != 0 && !extreme) rows.finished(rows.context, turn + 1);
  }
  return turn;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

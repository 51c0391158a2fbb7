// Groups of short rows, turn by turn: one is mapped, the next one finished, the next but one summed. A turn affects no
// bit; its statistics hide behind the map, and their sums have left the store buffer. Included once per target.
#pragma once

#include "kernels/finish-inl.h"
#include "kernels/map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Maps and sums as many rows side by side as both groups have, the rest by themselves.
template <class T, bool kCentred>
HWY_INLINE void MapAndSumGroups(const MapRows<T>& map, const SumRows<T>& next) {
  const size_t mapped = map.n / kStep * kStep, both = map.n > kStep ? HWY_MIN(map.rows, next.rows) : 0;
  for (size_t i = 0; i < both; ++i) {
    MapAndSumRow<T, kCentred>(map, next, {}, i, mapped);
    MapRow(map, i, mapped);
  }
  SumRowsFrom<T, kCentred>(next, both);
  for (size_t i = both; i < map.rows; ++i) MapRow(map, i, 0);
}

template <class T, bool kCentred>
size_t TurnsOfShortRows(const ShortRows<T>& rows, size_t turn, size_t most, bool* wants_look) {
  const size_t group = rows.group;
  const auto rows_of = [&](size_t t)
                           HWY_ATTR { return t * group < rows.count ? HWY_MIN(group, rows.count - t * group) : 0; };
  const auto group_of = [&](size_t t) HWY_ATTR { return rows.groups + t % kGroups; };
  GroupFlags flags{false, false};
  for (; most != 0 && !flags.look && !flags.extreme && rows_of(turn) != 0; --most, ++turn) {
    auto& next = *group_of(turn + 1);
    const size_t next_rows = rows_of(turn + 1), later_row = (turn + 2) * group, later_rows = rows_of(turn + 2);
    if (next_rows != 0) {
      if (next_rows < kMaxGroup) next.clear_from(next_rows);
      flags = FinishGroup(next, next_rows, rows.n, rows.eps, kCentred);
    }
    const EvenRows<const T> x{rows.x.at(turn * group), rows.x.step};
    const EvenRows<T> y{rows.y.at(turn * group), rows.y.step};
    const MapRows<T> map{x,           y,  rows_of(turn), rows.n, rows.gamma, rows.beta, &group_of(turn)->map, 0,
                         rows.stream, {}, false};
    const auto& terms = rows.terms;
    const TermRows<T> later_terms{{terms.x.at(later_row), terms.x.step},
                                  {terms.r.first == nullptr ? nullptr : terms.r.at(later_row), terms.r.step},
                                  terms.scale};
    const EvenRows<const T> later_x{rows.x.at(later_row), rows.x.step};
    MapAndSumGroups<T, kCentred>(map, {later_x, later_rows, rows.n, group_of(turn + 2), 0, rows.ahead, later_terms});
  }
  *wants_look = flags.look;
  return turn;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

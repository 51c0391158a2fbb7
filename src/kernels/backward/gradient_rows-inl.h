// Gradients of short rows in one call: sums, scalars, dx and columns, row by row, or kNarrowRows narrow rows at once.
// Included once per target.
#pragma once

#include "kernels/backward/gradient_dx-inl.h"
#include "kernels/backward/gradient_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// Joins the wide lanes of kRows rows to one number each. kSums: one of the members of GradientSumLanes.
template <size_t kRows, auto kSums>
HWY_INLINE void JoinRows(const GradientSumLanes* lanes, double* to) {
  constexpr size_t kN = kRows == 1 ? 1 : hn::MaxLanes(DF64());
  static_assert(kRows % kN == 0);
  for (size_t r = 0; r < kRows; r += kN) {
    V64 rows[kN];
    for (size_t i = 0; i < kN; ++i) rows[i] = FoldVectors<GradientSumLanes::kVectors, 1>(lanes[r + i].*kSums);
    if constexpr (kN == 1) {
      to[r] = JoinLanes(DF64(), rows[0]);
    } else {
      hn::Store(JoinFoldedRows<false>(rows), DF64(), to + r);
    }
  }
}

// The scalars of kRows rows from row `first` on that follow from their statistics.
template <size_t kRows, class A>
HWY_INLINE void StoreScalarsOfStatistics(const RowStatistics& rows, size_t first, DxScalarsOfRows<A>& to) {
  const hn::CappedTag<double, kRows> d;
  for (size_t r = 0; r < kRows; r += hn::MaxLanes(d)) {
    const auto load = [&](const double* values) HWY_ATTR { return hn::LoadU(d, values + first + r); };
    const auto never = hn::Lt(hn::Zero(d), hn::Zero(d));
    StoreNormScalars<A>(d, load(rows.mean), load(rows.mean_lo), load(rows.rstd), never, to.centre + r, to.offset + r,
                        to.rstd + r);
  }
}
// Those that follow from their sums, too. Returns false if a row is rare.
template <size_t kRows, class A>
HWY_INLINE bool StoreScalarsOfSums(const RowStatistics& rows, size_t first, const GradientSumLanes* lanes, size_t cols,
                                   bool centred, DxScalarsOfRows<A>& to) {
  const hn::CappedTag<double, kRows> d;
  HWY_ALIGN double g[kRows], gd[kRows];
  JoinRows<kRows, &GradientSumLanes::g>(lanes, g);
  JoinRows<kRows, &GradientSumLanes::gd>(lanes, gd);
  bool holds = true;
  for (size_t r = 0; r < kRows; r += hn::MaxLanes(d)) {
    const auto load = [&](const double* values) HWY_ATTR { return hn::LoadU(d, values + first + r); };
    const auto rest = RestOfMean<A>(d, load(rows.mean), load(rows.mean_lo));
    const auto rstd = load(rows.rstd), sum = centred ? hn::Load(d, g + r) : hn::Zero(d);
    const SumsOfRows<hn::Vec<decltype(d)>> sums{sum, SumAboutMean(d, sum, hn::Load(d, gd + r), rest)};
    const auto means = GradientMeansOf(d, centred, sums, rstd, static_cast<double>(cols));
    holds = holds && hn::AllTrue(d, StoreDxScalars<A>(d, rest, rstd, means, r, to));
  }
  return holds;
}

// dx of kNarrowRows rows, tile by tile: chains of columns stay in registers. kStream: dx fills cache lines.
template <class T, size_t kVectors, bool kStream, bool kPart, class A = Arithmetic<T>>
EVENORM_INLINE_LOOP void DxOfTile(const GradientShortRows<T>& all, size_t first, const DxScalarsOfRows<A>& scalars,
                                  size_t c, hn::Vec<hn::ScalableTag<A>>& watch) {
  constexpr bool kPairs = kPairRows<A> == kNarrowRows;
  const EvenRows<const T> x = all.x, dy = all.dy;  // copies, which can stay in registers
  const EvenRows<T> dx = all.dx;
  const ColumnPlaces sums = all.columns.sums;
  DxOfColumns<T, kVectors, kPart> tile(all.gamma, c, all.n - c), first_chain = tile;
#pragma GCC unroll 1  // of several rows, the compiler would mix them, and run out of registers
  for (size_t r = 0; r < kNarrowRows; ++r) {
    if (r == kChainRows) {
      kPairs ? static_cast<void>(first_chain = tile) : tile.AddTo(sums);
      tile.Clear();
    }
    const DxVectors<hn::ScalableTag<A>> row(scalars.of(r));
    tile.template Row<kStream>(x.at(first + r), dy.at(first + r), dx.at(first + r), row, watch);
  }
  if (kPairs) tile.Add(first_chain);
  tile.AddTo(sums);
}
// The columns from c on. Not inlined, because both forms of the next function share it. Returns watch.
template <class T, class A = Arithmetic<T>, class V = hn::Vec<hn::ScalableTag<A>>>
HWY_NOINLINE V DxOfLastTile(const GradientShortRows<T>& all, size_t first, const DxScalarsOfRows<A>& scalars,
                            size_t c) {
  V watch = hn::Zero(hn::ScalableTag<A>());
  DxOfTile<T, 2, false, true>(all, first, scalars, c, watch);
  return watch;
}
template <class T, bool kStream, class A = Arithmetic<T>>
EVENORM_INLINE_LOOP bool DxOfNarrowRows(const GradientShortRows<T>& all, size_t first,
                                        const DxScalarsOfRows<A>& scalars) {
  constexpr size_t kN = hn::MaxLanes(hn::ScalableTag<A>());
  auto watch = hn::Zero(hn::ScalableTag<A>());
  size_t c = 0;
#pragma GCC unroll 1
  for (; c + 4 * kN <= all.n; c += 4 * kN) DxOfTile<T, 4, kStream, false>(all, first, scalars, c, watch);
#pragma GCC unroll 1
  for (; c + 2 * kN <= all.n; c += 2 * kN) DxOfTile<T, 2, kStream, false>(all, first, scalars, c, watch);
  if (c < all.n) watch = hn::Add(watch, DxOfLastTile(all, first, scalars, c));
  return AllFinite<A>(watch);
}

// kRows rows from row `first` on, which are all summed first. Does and writes nothing if one of them is rare.
template <class T, size_t kRows>
EVENORM_INLINE_LOOP GradientsDone GradientsOfFew(const GradientShortRows<T>& all, size_t first) {
  DxScalarsOfRows<Arithmetic<T>> scalars;
  GradientSumLanes lanes[kRows];
  StoreScalarsOfStatistics<kRows>(all.statistics, first, scalars);
  const EvenRows<const T> x = all.x, dy = all.dy;  // copies, which can stay in registers
  const Arithmetic<T>* gamma = all.gamma;
  const size_t n = all.n, ahead = all.ahead;
#pragma GCC unroll 1
  for (size_t r = 0; r < kRows; ++r) {
    const GradientPiece<T> row{x.at(first + r), dy.at(first + r), gamma, n, ahead};
    lanes[r] = RowLanes<(kRows > 1)>(row, scalars.centre[r]);
  }
  const bool rare = !StoreScalarsOfSums<kRows>(all.statistics, first, lanes, all.n, all.centred, scalars);
  if (HWY_UNLIKELY(rare)) return {first, 0};
  bool finite = true;
  if (kRows > 1 && all.columns.are_wanted()) {
    const bool stream = all.stream && FillsLines(all.dx.at(0), all.n) && FillsLines(all.dx.at(1), all.n);
    finite = stream ? DxOfNarrowRows<T, true>(all, first, scalars) : DxOfNarrowRows<T, false>(all, first, scalars);
  } else {
    const RowBlock<Arithmetic<T>> block{0, all.count};
#pragma GCC unroll 1
    for (size_t r = first; r < first + kRows; ++r) {
      finite &= DxOfRow<T>({x.at(r), dy.at(r), gamma, n}, all.dx.at(r), scalars.of(r - first),
                           block.chains_of(r, all.columns), block.chain(r, all.columns), all.stream);
    }
  }
  return {first + kRows, finite ? 0 : kRows};
}

template <class T>
GradientsDone GradientsOfShortRows(const GradientShortRows<T>& all) {
  static_assert(kNarrowRows == 2 * kChainRows);
  static_assert(kMaxGroup % kNarrowRows == 0 && kMaxShortRows % kNarrowRows == 0);  // so each call begins with a pair
  GradientsDone done{all.begin, 0};
  while (done.next < all.count && done.not_finite == 0) {
    const size_t row = done.next;
    const bool together = all.narrow && row % kNarrowRows == 0 && row + kNarrowRows <= all.count;
    if (together) done = GradientsOfFew<T, kNarrowRows>(all, row);
    if (done.next == row) done = GradientsOfFew<T, 1>(all, row);
    if (done.next == row) break;
  }
  return done;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

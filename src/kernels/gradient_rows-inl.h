// Gradients of short rows in one call: sums, scalars, dx and columns, row by row, or kNarrowRows narrow rows at once.
// Included once per target.
#pragma once

#include "kernels/gradient_dx-inl.h"
#include "kernels/gradient_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The scalars of kRows rows, from their statistics and then their sums.
template <class T, size_t kRows>
class ShortRowScalars {
  using A = Arithmetic<T>;
  using D = hn::CappedTag<double, kRows>;
  static constexpr size_t kAtOnce = hn::MaxLanes(D());
  static constexpr size_t kJoined = kRows == 1 ? 1 : hn::MaxLanes(DF64());
  static_assert(kRows % kJoined == 0);

 public:
  HWY_INLINE ShortRowScalars(const GradientShortRows<T>& all, size_t first)
      : statistics_(all.statistics), first_(first) {
    const D d;
    for (size_t r = 0; r < kRows; r += kAtOnce) {
      const auto never = hn::Lt(hn::Zero(d), hn::Zero(d));
      StoreNormScalars<A>(d, Load(statistics_.mean, r), Load(statistics_.mean_lo, r), Load(statistics_.rstd, r), never,
                          scalars_.centre + r, scalars_.offset + r, scalars_.rstd + r);
    }
  }

  const DxScalarsOfRows<A>& get() const { return scalars_; }

  // False where a row is rare.
  HWY_INLINE bool Finish(const GradientSumLanes* lanes, size_t cols, bool centred) {
    const D d;
    HWY_ALIGN double g[kRows], gd[kRows];
    for (size_t r = 0; r < kRows; r += kJoined) {
      Join(
          lanes + r, [](const auto& sums) HWY_ATTR { return sums.g; }, g + r);
      Join(
          lanes + r, [](const auto& sums) HWY_ATTR { return sums.gd; }, gd + r);
    }
    bool holds = true;
    for (size_t r = 0; r < kRows; r += kAtOnce) {
      const auto rest = RestOfMean<A>(d, Load(statistics_.mean, r), Load(statistics_.mean_lo, r));
      const auto rstd = Load(statistics_.rstd, r), sum = centred ? hn::Load(d, g + r) : hn::Zero(d);
      const SumsOfRows<hn::Vec<D>> sums{sum, SumAboutMean(d, sum, hn::Load(d, gd + r), rest)};
      const auto means = GradientMeansOf(d, centred, sums, rstd, static_cast<double>(cols));
      holds = holds && hn::AllTrue(d, StoreDxScalars<A>(d, rest, rstd, means, r, scalars_));
    }
    return holds;
  }

 private:
  HWY_INLINE hn::Vec<D> Load(const double* values, size_t r) const { return hn::LoadU(D(), values + first_ + r); }

  // The lanes of kJoined rows, each to one number.
  template <class SumOf>
  static HWY_INLINE void Join(const GradientSumLanes* lanes, const SumOf& of, double* to) {
    constexpr size_t kVectors = kWideLanes / hn::MaxLanes(DF64());
    if constexpr (kJoined == 1) {
      *to = JoinLanes(DF64(), FoldVectors<kVectors, 1>(of(lanes[0])));
    } else {
      V64 rows[kJoined];
      for (size_t i = 0; i < kJoined; ++i) rows[i] = FoldVectors<kVectors, 1>(of(lanes[i]));
      hn::Store(JoinFoldedRows<false>(rows), DF64(), to);
    }
  }

  const RowStatistics& statistics_;
  size_t first_;
  DxScalarsOfRows<A> scalars_;
};

// Where rows are, from one on.
template <class T>
struct RowPlaces {
  HWY_INLINE RowPlaces(const GradientShortRows<T>& rows, size_t row)
      : all_x(rows.x), all_dy(rows.dy), all_dx(rows.dx), x(all_x.at(row)), dy(all_dy.at(row)), dx(all_dx.at(row)) {}
  HWY_INLINE void Next() { x = all_x.after(x, 1), dy = all_dy.after(dy, 1), dx = all_dx.after(dx, 1); }

  const EvenRows<const T> all_x, all_dy;  // copies, which can stay in registers
  const EvenRows<T> all_dx;
  const T* x;
  const T* dy;
  T* dx;
};

// dx of kNarrowRows rows, tile by tile: chains of columns stay in registers. kStream: all of dx is aligned to a vector.
template <class T, size_t kVectors, bool kStream, bool kPart, class A = Arithmetic<T>>
EVENORM_INLINE_LOOP void DxOfTile(RowPlaces<T> rows, const A* gamma, const DxScalarsOfRows<A>& scalars, size_t c,
                                  size_t n, const ColumnPlaces& sums, hn::Vec<hn::ScalableTag<A>>& watch) {
  const hn::ScalableTag<A> d;
  DxOfColumns<T, kVectors, kPart> tile(gamma, c, n - c);
#pragma GCC unroll 1  // of several rows, the compiler would mix them, and run out of registers
  for (size_t r = 0; r < kNarrowRows; ++r, rows.Next()) {
    tile.template Row<true, kStream>(rows.x, rows.dy, rows.dx, hn::Set(d, scalars.centre[r]),
                                     hn::Set(d, scalars.offset[r]), hn::Set(d, scalars.rstd[r]),
                                     hn::Set(d, scalars.k2[r]), hn::Set(d, scalars.a[r]), watch);
    if ((r + 1) % kChainRows != 0) continue;
    tile.AddTo(sums);
    tile.Clear();
  }
}
template <class T, bool kStream, class A = Arithmetic<T>>
EVENORM_INLINE_LOOP bool DxOfNarrowRows(const RowPlaces<T>& rows, const A* gamma, const DxScalarsOfRows<A>& scalars,
                                        size_t n, const ColumnPlaces& places) {
  constexpr size_t kN = hn::MaxLanes(hn::ScalableTag<A>());
  const ColumnPlaces sums = places;
  auto watch = hn::Zero(hn::ScalableTag<A>());
  size_t c = 0;
#pragma GCC unroll 1
  for (; c + 4 * kN <= n; c += 4 * kN) DxOfTile<T, 4, kStream, false>(rows, gamma, scalars, c, n, sums, watch);
#pragma GCC unroll 1
  for (; c + 2 * kN <= n; c += 2 * kN) DxOfTile<T, 2, kStream, false>(rows, gamma, scalars, c, n, sums, watch);
  if (c < n) DxOfTile<T, 2, false, true>(rows, gamma, scalars, c, n, sums, watch);
  return AllFinite<A>(watch);
}

// What became of some rows: nothing, and nothing is written, where one of them is rare.
enum class Done { none, all, with_dx_not_finite };

// kRows rows, of which all are summed first. open: whether there are rows in the chains.
template <class T, size_t kRows>
EVENORM_INLINE_LOOP Done GradientsOfFew(const GradientShortRows<T>& all, size_t first, bool open) {
  using A = Arithmetic<T>;
  ShortRowScalars<T, kRows> scalars(all, first);
  GradientSumLanes lanes[kRows];
  RowPlaces<T> rows(all, first), summed = rows;
  const A* gamma = all.gamma;
  const size_t n = all.n, ahead = all.ahead;
#pragma GCC unroll 1
  for (size_t r = 0; r < kRows; ++r, summed.Next()) {
    lanes[r] = RowLanes(summed.x, summed.dy, gamma, scalars.get().centre[r], n, ahead);
  }
  if (HWY_UNLIKELY(!scalars.Finish(lanes, n, all.centred))) return Done::none;
  bool finite = true;
  if (kRows > 1 && all.columns.sums.dgamma != nullptr) {
    bool stream = all.stream;
    for (size_t r = 0; r < kRows; ++r) stream = stream && IsAlignedToVector(all.dx.at(first + r));
    finite = stream ? DxOfNarrowRows<T, true>(rows, gamma, scalars.get(), n, all.columns.sums)
                    : DxOfNarrowRows<T, false>(rows, gamma, scalars.get(), n, all.columns.sums);
  } else {
#pragma GCC unroll 1
    for (size_t r = 0; r < kRows; ++r, rows.Next()) {
      const bool ends = all.block.ends_chain(all.first + first + r);
      finite &= DxOfRow<T>({rows.x, rows.dy, gamma, n, 0}, rows.dx, scalars.get().of(r), all.columns, {!open, ends},
                           all.stream);
      open = !ends;
    }
  }
  return finite ? Done::all : Done::with_dx_not_finite;
}

template <class T>
GradientsDone GradientsOfShortRows(const GradientShortRows<T>& all) {
  static_assert(kNarrowRows % kChainRows == 0);
  bool open = all.open;
  const bool is_narrow = all.n <= kNarrowColumns;
  for (size_t row = all.begin; row < all.count;) {
    Done done = Done::none;
    size_t n = kNarrowRows;
    if (is_narrow && all.block.place(all.first + row) == 0 && n <= all.count - row) {
      done = GradientsOfFew<T, kNarrowRows>(all, row, open);
    }
    if (done == Done::none) {
      n = 1;
      done = GradientsOfFew<T, 1>(all, row, open);
    }
    if (HWY_UNLIKELY(done != Done::all)) return done == Done::none ? GradientsDone{row, 0} : GradientsDone{row + n, n};
    row += n;
    open = !all.block.ends_chain(all.first + row - 1);
  }
  return {all.count, 0};
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

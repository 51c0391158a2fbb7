// Gradients of short rows in one call: sums, scalars, dx and columns, row by row, or kChainRows narrow rows at once.
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
  using W = Wide<A, D>;
  static constexpr size_t kAtOnce = hn::MaxLanes(D());

 public:
  HWY_INLINE ShortRowScalars(const GradientShortRows<T>& all, size_t first)
      : statistics_(all.statistics), first_(first) {
    const D d;
    for (size_t r = 0; r < kRows; r += kAtOnce) {
      const auto never = hn::Lt(hn::Zero(d), hn::Zero(d));
      StoreMapScalars<A>(d, Load(statistics_.mean_hi, r), Load(statistics_.mean_lo, r), Load(statistics_.rstd, r),
                         never, scalars_.centre + r, scalars_.offset + r, scalars_.rstd + r);
    }
  }

  const GradientMapScalarsOfRows<A>& get() const { return scalars_; }

  // False where a row needs wider steps.
  HWY_INLINE bool Finish(const GradientSumLanes<A>* lanes, size_t cols, bool centred) {
    const D d;
    HWY_ALIGN double g_hi[kRows] = {}, g_lo[kRows] = {}, gd_hi[kRows] = {}, gd_lo[kRows] = {};
    Join(lanes, g_hi, g_lo, gd_hi, gd_lo);
    bool holds = true;
    for (size_t r = 0; r < kRows; r += kAtOnce) {
      const auto rest = RestOfMean<A>(d, Load(statistics_.mean_hi, r), Load(statistics_.mean_lo, r));
      const W rstd = W::From(d, Load(statistics_.rstd, r), Load(statistics_.rstd_lo, r));
      const W g = W::From(d, hn::Load(d, g_hi + r), hn::Load(d, g_lo + r));
      const W gd = W::From(d, hn::Load(d, gd_hi + r), hn::Load(d, gd_lo + r));
      const auto means =
          GradientMeansOf(d, centred, WideSums<W>{g, SumAboutMean(d, g, gd, rest)}, rstd, static_cast<double>(cols));
      holds = holds && hn::AllTrue(d, StoreGradientMap<A>(d, rest, rstd, means, r, scalars_));
    }
    return holds;
  }

 private:
  HWY_INLINE hn::Vec<D> Load(const double* values, size_t r) const { return hn::LoadU(D(), values + first_ + r); }

  // The lanes of each row to one number.
  static HWY_INLINE void Join(const GradientSumLanes<A>* lanes, double* g_hi, double* g_lo, double* gd_hi,
                              double* gd_lo) {
    constexpr size_t kN = hn::MaxLanes(DF64()), kVectors = kWideLanes / kN;
    if constexpr (kRows % kN == 0) {
      for (size_t i = 0; i < kRows; i += kN) {
        Wide<A, DF64> g[kN], gd[kN];
        for (size_t r = 0; r < kN; ++r) {
          g[r] = FoldVectors<kVectors, 1>(lanes[i + r].g);
          gd[r] = FoldVectors<kVectors, 1>(lanes[i + r].gd);
        }
        StoreColumns(JoinFoldedRows<false>(g), g_hi, static_cast<size_t>(g_lo - g_hi), i);
        StoreColumns(JoinFoldedRows<false>(gd), gd_hi, static_cast<size_t>(gd_lo - gd_hi), i);
      }
    } else {
      for (size_t r = 0; r < kRows; ++r) {
        const auto g = JoinLanes(DF64(), FoldVectors<kVectors, 1>(lanes[r].g));
        const auto gd = JoinLanes(DF64(), FoldVectors<kVectors, 1>(lanes[r].gd));
        g_hi[r] = hn::GetLane(g.hi), g_lo[r] = hn::GetLane(g.Low(DScalar()));
        gd_hi[r] = hn::GetLane(gd.hi), gd_lo[r] = hn::GetLane(gd.Low(DScalar()));
      }
    }
  }

  const RowStatistics& statistics_;
  size_t first_;
  GradientMapScalarsOfRows<A> scalars_;
};

// What became of some rows: nothing, and nothing is written, where one of them is wide.
enum class Done { none, all, with_dx_not_finite };

// dx of kRows rows from row `first` on, once their scalars are known.
template <class T, size_t kRows, class A = Arithmetic<T>>
HWY_INLINE bool DxOfFew(const GradientShortRows<T>& all, size_t first, const GradientMapScalarsOfRows<A>& scalars,
                        bool begins, bool ends) {
  bool finite = true;
  for (size_t r = 0; r < kRows; ++r) {
    const GradientPiece<T> piece{all.x.at(first + r), all.dy.at(first + r), all.gamma, all.n, 0};
    const bool is_first = kRows == 1 ? begins : r % kChainRows == 0;
    const bool is_last = kRows == 1 ? ends : (r + 1) % kChainRows == 0;
    finite &= DxOfRow<T>(piece, all.dx.at(first + r), scalars, r, all.columns, is_first, is_last, all.stream);
  }
  return finite;
}
// The same of whole chains of narrow rows.
template <class T, size_t kRows, class A = Arithmetic<T>>
HWY_INLINE bool DxOfChains(const GradientShortRows<T>& all, size_t first, const GradientMapScalarsOfRows<A>& scalars) {
  bool finite = true;
  for (size_t r = 0; r < kRows; r += kChainRows) {
    DxRows<T, kChainRows> rows;
    for (size_t i = 0; i < kChainRows; ++i) {
      const size_t row = first + r + i;
      rows.x[i] = all.x.at(row), rows.dy[i] = all.dy.at(row), rows.dx[i] = all.dx.at(row);
    }
    finite &= DxOfRows<T, kChainRows, Chain::whole>(rows, all.gamma, all.n, scalars, r, all.columns, all.stream);
  }
  return finite;
}

// begins, ends: of one row, its place in its chains; more rows are whole chains.
template <class T, size_t kRows>
HWY_INLINE Done GradientsOfFew(const GradientShortRows<T>& all, size_t first, bool begins, bool ends) {
  ShortRowScalars<T, kRows> scalars(all, first);
  GradientSumLanes<Arithmetic<T>> lanes[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    lanes[r].Clear();
    AddRow(all.x.at(first + r), all.dy.at(first + r), all.gamma, scalars.get().centre[r], all.n, all.ahead, lanes[r]);
  }
  if (HWY_UNLIKELY(!scalars.Finish(lanes, all.n, all.centred))) return Done::none;
  bool finite = true;
  if (kRows > 1 && all.n <= kNarrowColumns && all.columns.sums.dgamma != nullptr) {
    if constexpr (kRows > 1) finite = DxOfChains<T, kRows>(all, first, scalars.get());
  } else {
    finite = DxOfFew<T, kRows>(all, first, scalars.get(), begins, ends);
  }
  return finite ? Done::all : Done::with_dx_not_finite;
}

template <class T>
GradientsDone GradientsOfShortRows(const GradientShortRows<T>& all) {
  static_assert(kGradientRows % kChainRows == 0);
  bool open = !all.place.begins;
  for (size_t row = all.begin; row < all.count;) {
    const size_t place = (all.at + row) % kChainRows;
    Done done = Done::none;
    size_t n = kGradientRows;
    if (all.n * sizeof(T) <= kGroupedRowBytes && place == 0 && all.count - row >= n) {
      done = GradientsOfFew<T, kGradientRows>(all, row, true, true);
    }
    if (done == Done::none) {
      n = 1;
      const bool ends = place + n == kChainRows || (all.place.ends && row + n == all.count);
      done = GradientsOfFew<T, 1>(all, row, !open, ends);
      if (done != Done::none) open = !ends;
    }
    if (HWY_UNLIKELY(done != Done::all)) return done == Done::none ? GradientsDone{row, 0} : GradientsDone{row + n, n};
    row += n;
  }
  return {all.count, 0};
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

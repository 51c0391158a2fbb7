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

// From row `first` on. 1 and where its dx is not finite 2; 0, and nothing is written, where a row needs wider steps.
template <class T, size_t kRows>
HWY_INLINE int GradientsOfFew(const GradientShortRows<T>& all, size_t first, bool begins, bool ends) {
  using A = Arithmetic<T>;
  ShortRowScalars<T, kRows> scalars(all, first);
  GradientSumLanes<A> lanes[kRows];
  DxRows<T, kRows> rows;
  for (size_t r = 0; r < kRows; ++r) {
    rows.x[r] = all.x.at(first + r), rows.dy[r] = all.dy.at(first + r), rows.dx[r] = all.dx.at(first + r);
    lanes[r].Clear();
    AddRow(rows.x[r], rows.dy[r], all.gamma, scalars.get().centre[r], all.n, all.ahead, lanes[r]);
  }
  if (HWY_UNLIKELY(!scalars.Finish(lanes, all.n, all.centred))) return 0;
  bool finite = true;
  if constexpr (kRows == 1) {
    finite = DxOfRow<T>({rows.x[0], rows.dy[0], all.gamma, all.n, 0}, rows.dx[0], scalars.get(), 0, all.columns, begins,
                        ends, all.stream);
  } else {
    finite = DxOfRows<T, kRows, Chain::whole>(rows, all.gamma, all.n, scalars.get(), 0, all.columns, all.stream);
  }
  return finite ? 1 : 2;
}

template <class T>
GradientsDone GradientsOfShortRows(const GradientShortRows<T>& all) {
  bool open = !all.place.begins;
  for (size_t row = all.begin, n; row < all.count; row += n) {
    const size_t place = (all.at + row) % kChainRows;
    const bool four =
        all.n <= kNarrowColumns && place == 0 && all.count - row >= kChainRows && all.columns.sums.dgamma != nullptr;
    n = four ? kChainRows : 1;
    const bool ends = place + n == kChainRows || (all.place.ends && row + n == all.count);
    const int done =
        four ? GradientsOfFew<T, kChainRows>(all, row, true, true) : GradientsOfFew<T, 1>(all, row, !open, ends);
    if (HWY_UNLIKELY(done != 1)) return done == 0 ? GradientsDone{row, 0} : GradientsDone{row + n, n};
    open = !ends;
  }
  return {all.count, 0};
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

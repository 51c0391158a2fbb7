// Rows outside the safe range: scaled by a power of two, block by block, through the same reductions and the same map;
// and rows that hold a NaN or an infinity. T is always the arithmetic's type here.
// Included once per target.
#if defined(EVENORM_KERNELS_EXTREME_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_EXTREME_INL_H_
#undef EVENORM_KERNELS_EXTREME_INL_H_
#else
#define EVENORM_KERNELS_EXTREME_INL_H_
#endif

#include "kernels/apply-inl.h"
#include "kernels/stages-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The largest magnitude of a row; infinity where an element is not finite.
template <class A>
HWY_INLINE A LargestMagnitude(Source<A>& source, size_t row, size_t cols) {
  A largest = 0;
  for (size_t block = 0; block < BlocksOf(cols); ++block) {
    const size_t n = BlockCols(cols, block);
    const A* x = source.Block(row, block * kBlock, n);
    for (size_t i = 0; i < n; ++i) {
      const A magnitude = std::fabs(LoadOne(x + i));
      if (!(magnitude <= std::numeric_limits<A>::max())) return std::numeric_limits<A>::infinity();
      largest = HWY_MAX(largest, magnitude);
    }
  }
  return largest;
}

// A finite row that is not all zeros, scaled so that its largest magnitude is about 1. Leaves the source scaled so.
template <class A, class Norm>
HWY_INLINE ScaledRow SumScaled(Source<A>& source, size_t row, size_t cols, A largest, double eps) {
  constexpr int kMostNegative = 2 - std::numeric_limits<A>::max_exponent;
  const int exponent = HWY_MAX(std::ilogb(largest), kMostNegative);
  source.SetScale(static_cast<A>(std::ldexp(1.0, -exponent)));
  Moments nodes[MomentTree<Norm, A>::kMaxNodes];
  MomentTree<Norm, A> tree(nodes);
  SumBlocks(tree, source, row, cols, 0, BlocksOf(cols));
  return FinishScaled<A>(tree.Finish(), exponent, eps);
}

template <class A, class Norm>
class ExtremeRow {
 public:
  ExtremeRow(const Problem& p, const Source<A>& source, const Sink<A>& sink, Parameter<A, 1>& gamma,
             Parameter<A, 0>& beta)
      : p_(p), blocks_(BlocksOf(p.cols)), source_(source), sink_(sink), gamma_(gamma), beta_(beta) {}

  void Run(size_t row) {
    const A largest = LargestMagnitude(source_, row, p_.cols);
    if (!(largest <= std::numeric_limits<A>::max())) {
      FillNan(row);
    } else if (largest == A{0}) {
      const double rstd = p_.eps > 0 ? 1 / std::sqrt(p_.eps) : 0;
      Map(row, {0, {0, 0, rstd, false}, 0, rstd, true});
    } else {
      RunScaled(row, largest);
    }
  }

 private:
  void RunScaled(size_t row, A largest) {
    const ScaledRow scaled = SumScaled<A, Norm>(source_, row, p_.cols, largest, p_.eps);
    source_.SetScale(static_cast<A>(std::ldexp(1.0, -scaled.map_exponent)));
    Map(row, scaled);
  }

  void Map(size_t row, const ScaledRow& scaled) {
    StoreStatistic(p_.mean, row, scaled.mean);
    StoreStatistic(p_.rstd, row, scaled.rstd);
    const auto map = MapScalarsOf<A>(scaled.scalars);
    for (size_t block = 0; block < blocks_; ++block) {
      const size_t first = block * kBlock, n = BlockCols(p_.cols, block);
      const A* x = source_.Block(row, first, n);
      const A* gamma = gamma_.Block(first, n);
      const A* beta = beta_.Block(first, n);
      A* y = sink_.Block(row, first, n);
      MapWhole(false, map, x, gamma, beta, n, y);
      CanonicalizeNans(y, n);
      sink_.Done(row, first, n);
    }
  }

  void FillNan(size_t row) {
    StoreStatistic(p_.mean, row, std::numeric_limits<double>::quiet_NaN());
    StoreStatistic(p_.rstd, row, std::numeric_limits<double>::quiet_NaN());
    for (size_t block = 0; block < blocks_; ++block) {
      const size_t first = block * kBlock, n = BlockCols(p_.cols, block);
      A* y = sink_.Block(row, first, n);
      for (size_t i = 0; i < n; ++i) StoreOne(std::numeric_limits<A>::quiet_NaN(), y + i);
      sink_.Done(row, first, n);
    }
  }

  const Problem& p_;
  size_t blocks_;
  Source<A> source_;
  Sink<A> sink_;
  Parameter<A, 1>& gamma_;
  Parameter<A, 0>& beta_;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard

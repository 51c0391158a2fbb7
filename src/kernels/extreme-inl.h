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
#include "moments.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// The largest magnitude of a row; infinity where an element is not finite.
template <class Source>
HWY_INLINE auto LargestMagnitude(Source& source, size_t row, size_t cols) {
  using A = std::remove_cv_t<std::remove_pointer_t<decltype(source.Block(row, 0, 0))>>;
  A largest = 0;
  for (size_t block = 0; block < blocks_of(cols); ++block) {
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

// The least exponent that is taken out: 2^-exponent is in range.
template <class A>
inline constexpr int kLeastExponent = 2 - std::numeric_limits<A>::max_exponent;

// A finite row that is not all zeros, scaled so that its largest magnitude is about 1, summed to the tree. Returns the
// exponent taken out, and leaves the source scaled so.
template <class A, class Tree, class Source>
HWY_INLINE int SumScaledBlocks(Tree& tree, Source& source, size_t row, size_t cols, A largest) {
  const int exponent = HWY_MAX(std::ilogb(largest), kLeastExponent<A>);
  source.SetScale(static_cast<A>(std::ldexp(1.0, -exponent)));
  SumBlocks(tree, source, row, cols, 0, blocks_of(cols));
  return exponent;
}

// nodes: room for those of the row's tree.
template <class A, class Norm>
HWY_INLINE ScaledRow SumScaled(Source<A>& source, size_t row, size_t cols, A largest, double eps, MomentNode* nodes) {
  MomentTree<Norm, A> tree(nodes);
  const int exponent = SumScaledBlocks(tree, source, row, cols, largest);
  return FinishScaled<A>(tree.Finish(), exponent, eps);
}

// The same of a row whose moments are given.
template <class A>
HWY_INLINE ScaledRow FinishGiven(const Moments& given, double eps) {
  const int exponent = HWY_MAX(common_exponent(&given, 1) + exponent_of(given), kLeastExponent<A>);
  return FinishScaled<A>(LoadMoments<A>(rescaled(given, exponent)), exponent, eps);
}

// One y with its parameters.
template <class A>
struct NormOutput {
  Parameter<A, 1>& gamma;
  Parameter<A, 0>& beta;
  Sink<A> sink;
};

template <class A, class Norm>
class ExtremeRow {
 public:
  // nodes: as of SumScaled().
  ExtremeRow(const Problem& p, Source<A>& source, NormOutput<A>& output, MomentNode* nodes)
      : p_(p), blocks_(blocks_of(p.cols)), source_(source), output_(output), nodes_(nodes) {}

  void AddSecond(NormOutput<A>* second) { second_ = second; }
  // unscaled: the same rows as source, in scratch of their own.
  void AddSum(const Residual<A>* residual, Source<A>* unscaled) {
    residual_ = residual;
    unscaled_ = unscaled;
  }

  void Run(size_t row) {
    if (p_.moments != nullptr) return RunGiven(row, p_.moments[row]);
    const A largest = LargestMagnitude(source_, row, p_.cols);
    if (!(largest <= std::numeric_limits<A>::max())) {
      FillNan(row);
    } else if (largest == A{0}) {
      RunZeros(row);
    } else {
      RunScaled(row, SumScaled<A, Norm>(source_, row, p_.cols, largest, p_.eps, nodes_));
    }
  }

 private:
  void RunGiven(size_t row, const Moments& moments) {
    if (!is_finite(moments)) {
      FillNan(row);
    } else if (is_zero(moments)) {
      RunZeros(row);
    } else {
      RunScaled(row, FinishGiven<A>(moments, p_.eps));
    }
  }

  void RunZeros(size_t row) {
    const Rstd rstd = RstdOfConstant<A>(p_.eps);
    Map(row, {0, {0, 0, rstd.hi, false}, 0, rstd, rstd.lo, true});
  }

  void RunScaled(size_t row, const ScaledRow& scaled) {
    source_.SetScale(static_cast<A>(std::ldexp(1.0, -scaled.map_exponent)));
    Map(row, scaled);
  }

  void Map(size_t row, const ScaledRow& scaled) {
    StoreStatistic(p_.mean, row, scaled.mean);
    StoreStatistic(p_.rstd, row, scaled.rstd.hi);
    const auto map = MapScalarsOf<A>(scaled.scalars);
    Write(row, [&](size_t first, size_t n, NormOutput<A>& output, A* y) {
      const A* x = source_.Block(row, first, n);
      MapWhole(false, map, x, output.gamma.Block(first, n), output.beta.Block(first, n), n, y);
      CanonicalizeNans(y, n);
    });
  }

  void FillNan(size_t row) {
    StoreStatistic(p_.mean, row, std::numeric_limits<double>::quiet_NaN());
    StoreStatistic(p_.rstd, row, std::numeric_limits<double>::quiet_NaN());
    Write(row, [&](size_t, size_t n, NormOutput<A>&, A* y) {
      for (size_t i = 0; i < n; ++i) StoreOne(std::numeric_limits<A>::quiet_NaN(), y + i);
    });
  }

  // Block by block, and in each y last: it may be x or the residual, as the sum may.
  template <class Fill>
  void Write(size_t row, const Fill& fill) {
    do {
      for (size_t block = 0; block < blocks_; ++block) {
        const size_t first = block * kBlock, n = BlockCols(p_.cols, block);
        // Asked before Done(), which of a row's last block says that all is measured.
        const bool stores_sum = residual_ != nullptr && !output_.sink.IsMeasuring();
        const A* sum = stores_sum ? unscaled_->Block(row, first, n) : nullptr;
        if (second_ != nullptr) FillBlock(row, first, n, fill, *second_);
        FillBlock(row, first, n, fill, output_);
        if (stores_sum) residual_->StoreSum(row, first, n, false, sum);
      }
    } while (output_.sink.WantsAgain());
  }
  template <class Fill>
  static void FillBlock(size_t row, size_t first, size_t n, const Fill& fill, NormOutput<A>& output) {
    fill(first, n, output, output.sink.Block(row, first, n));
    output.sink.Done(row, first, n);
  }

  const Problem& p_;
  size_t blocks_;
  Source<A>& source_;
  NormOutput<A>& output_;
  MomentNode* nodes_;
  NormOutput<A>* second_ = nullptr;
  const Residual<A>* residual_ = nullptr;
  Source<A>* unscaled_ = nullptr;
};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard

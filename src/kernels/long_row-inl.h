// The forward pass of one long row in parts, for sharing its blocks out: moments of runs of blocks, their join, the
// map. Included once per target.
#if defined(EVENORM_KERNELS_LONG_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_LONG_ROW_INL_H_
#undef EVENORM_KERNELS_LONG_ROW_INL_H_
#else
#define EVENORM_KERNELS_LONG_ROW_INL_H_
#endif

#include "kernels/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class T, class Norm>
HWY_NOINLINE void MomentsOfBlocks(const Problem& p, size_t row, size_t first, size_t count, MomentNode* moments) {
  using A = Arithmetic<T>;
  ScratchMemory<kBlockScratchBytes> scratch;
  BlockSource<T> block_source(p, scratch);
  Source<T>& source = block_source.Get();
  const Residual<T> residual(p);
  if (residual.IsPresent()) source.AddResidual(residual, 0);
  MomentNode nodes[kMaxNodes];
  MomentTree<Norm, A> tree(nodes);
  SumBlocks(tree, source, row, p.cols, first, count);
  StoreMoments(tree.Finish(), moments);
}

template <class T>
HWY_ATTR void BlockMoments(const Problem& p, size_t row, size_t first, size_t count, MomentNode* moments) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? MomentsOfBlocks<T, LayerNorm>(p, row, first, count, moments)
                        : MomentsOfBlocks<T, RmsNorm>(p, row, first, count, moments);
}

template <class T, class Norm>
HWY_NOINLINE RowScalars JoinRow(const Problem& p, size_t row, const MomentNode* parts, size_t count) {
  using A = Arithmetic<T>;
  MomentNode nodes[kMaxNodes];
  MomentTree<Norm, A> tree(nodes);
  for (size_t i = 0; i < count; ++i) tree.Push(LoadMoments<A>(parts[i]));
  GroupStatistics<A> group;
  group.Set(0, tree.Finish());
  group.Finish(1, static_cast<double>(p.cols), p.eps);
  const RowScalars scalars = group.Row(0);
  if (!scalars.extreme) {
    StoreStatistic(p.mean, row, scalars.mean_hi);
    StoreStatistic(p.rstd, row, scalars.rstd);
  }
  return scalars;
}

template <class T>
HWY_ATTR void FinishRow(const Problem& p, size_t row, const MomentNode* parts, size_t count, RowScalars* out) noexcept {
  const FpEnvironment environment;
  *out =
      p.kind == Kind::layer ? JoinRow<T, LayerNorm>(p, row, parts, count) : JoinRow<T, RmsNorm>(p, row, parts, count);
}

template <class T>
HWY_NOINLINE void MapRange(const Problem& p, size_t row, const RowScalars& scalars, size_t first, size_t count) {
  ScratchMemory<kForwardScratchBytes<T>> scratch;
  const ColumnRange used{first * kBlock, HWY_MIN((first + count) * kBlock, p.cols)};
  ForwardRows<T, LayerNorm>(p, scratch, used).MapBlocks(row, scalars, first, count);  // the map is the same for both
}

template <class T>
HWY_ATTR void MapBlocks(const Problem& p, size_t row, const RowScalars& scalars, size_t first, size_t count) noexcept {
  const FpEnvironment environment;
  MapRange<T>(p, row, scalars, first, count);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard

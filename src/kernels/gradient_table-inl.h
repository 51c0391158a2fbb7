// The table of the backward pass's functions for one storage type. Included once per target.
#if defined(EVENORM_KERNELS_GRADIENT_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_GRADIENT_TABLE_INL_H_
#undef EVENORM_KERNELS_GRADIENT_TABLE_INL_H_
#else
#define EVENORM_KERNELS_GRADIENT_TABLE_INL_H_
#endif

#include "kernels/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class T, class Norm>
HWY_NOINLINE void RunRows(const GradientProblem& p, size_t first, size_t count) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T, Norm>(p, gradient_scratch(p), scratch, {0, p.cols}).Run(first, count, {});
}
template <class T>
HWY_ATTR void Rows(const GradientProblem& p, size_t first, size_t count) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? RunRows<T, LayerNorm>(p, first, count) : RunRows<T, RmsNorm>(p, first, count);
}

template <class T, class Norm>
HWY_NOINLINE void RunBlocks(const GradientProblem& p, size_t first, size_t count, double* slots) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T, Norm> rows(p, gradient_scratch(p), scratch, {0, p.cols});
  const size_t blocks = row_blocks(p), slot = column_numbers(p) * p.cols;
  double* nodes[kMaxNodes];
  ColumnTree<Arithmetic<T>> tree(nodes, 2 * p.cols);
  for (size_t block = first; block < first + count; ++block) {
    const size_t row = row_block_start(p.rows, blocks, block), end = row_block_start(p.rows, blocks, block + 1);
    double* sums = slots + tree.Depth() * slot;
    rows.Run(row, end - row, {sums, 0, p.cols});
    tree.Push(sums);
  }
  tree.Finish();
}
template <class T>
HWY_ATTR void Blocks(const GradientProblem& p, size_t first, size_t count, double* slots) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? RunBlocks<T, LayerNorm>(p, first, count, slots)
                        : RunBlocks<T, RmsNorm>(p, first, count, slots);
}

template <class A>
HWY_ATTR void Finish(const GradientProblem& p, double* sums, size_t runs, size_t distance) noexcept {
  const FpEnvironment environment;
  double* nodes[kMaxNodes];
  ColumnTree<A> tree(nodes, 2 * p.cols);
  for (size_t i = 0; i < runs; ++i) tree.Push(sums + i * distance);
  FinishColumns<A>(p, {tree.Finish(), 0, p.cols}, p.cols);
}

template <class T, class Norm>
HWY_NOINLINE void LookAtRowRange(const GradientProblem& p, size_t first, size_t count, GradientScalars* scalars) {
  ScratchMemory<kGradientScratchBytes> scratch;
  BackwardRows<T, Norm> rows(p, gradient_scratch(p), scratch, {0, p.cols});
  for (size_t row = first, n; row < first + count; row += n) {
    n = HWY_MIN(kRowsAtOnce, first + count - row);
    rows.Look(row, n, {}, scalars + row);
  }
}
template <class T>
HWY_ATTR void Look(const GradientProblem& p, size_t first, size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? LookAtRowRange<T, LayerNorm>(p, first, count, scalars)
                        : LookAtRowRange<T, RmsNorm>(p, first, count, scalars);
}

template <class T, class Norm>
HWY_NOINLINE void RunStrips(const GradientProblem& p, const GradientScalars* scalars, size_t first, size_t count) {
  ScratchMemory<kGradientScratchBytes> scratch;
  const GradientScratch plan = gradient_scratch(p);
  auto* values = scratch.at<double>(plan.strip_sums);
  BackwardRows<T, Norm> rows(p, plan, scratch, {first, first + count});
  for (size_t col = first, n; col < first + count; col += n) {
    n = HWY_MIN(kPiece<Arithmetic<T>>, first + count - col);
    const ColumnSums sums{values, col, kPiece<Arithmetic<T>>};
    rows.RunStrip(scalars, col, n, sums);
    FinishColumns<Arithmetic<T>>(p, sums, n);
  }
}
template <class T>
HWY_ATTR void Strip(const GradientProblem& p, const GradientScalars* scalars, size_t first, size_t count) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? RunStrips<T, LayerNorm>(p, scalars, first, count)
                        : RunStrips<T, RmsNorm>(p, scalars, first, count);
}

template <class T>
inline constexpr GradientFunctions kFunctionsOf = {&Rows<T>, &Blocks<T>, &Finish<Arithmetic<T>>, &Look<T>, &Strip<T>};

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard

// Compiles the kernels of the backward pass for every target and lists their tables.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient_functions.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "dispatch.hpp"
#include "kernels/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

template <class A, class Norm>
HWY_NOINLINE void RunRows(const GradientProblem& p, size_t first, size_t count) {
  Scratch scratch;
  BackwardRows<A, Norm>(p, scratch, {0, p.cols}).Run(first, count, {});
}
template <class A>
HWY_ATTR void Rows(const GradientProblem& p, size_t first, size_t count) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? RunRows<A, LayerNorm>(p, first, count) : RunRows<A, RmsNorm>(p, first, count);
}

template <class A, class Norm>
HWY_NOINLINE void RunBlocks(const GradientProblem& p, size_t first, size_t count, double* slots) {
  Scratch scratch;
  BackwardRows<A, Norm> rows(p, scratch, {0, p.cols});
  const size_t blocks = row_blocks(p), slot = column_numbers(p) * p.cols;
  double* nodes[ColumnTree<A>::kMaxNodes];
  ColumnTree<A> tree(nodes, 2 * p.cols);
  for (size_t block = first; block < first + count; ++block) {
    const size_t row = row_block_start(p.rows, blocks, block), end = row_block_start(p.rows, blocks, block + 1);
    double* sums = slots + tree.Depth() * slot;
    rows.Run(row, end - row, {sums, 0, p.cols});
    tree.Push(sums);
  }
  tree.Finish();
}
template <class A>
HWY_ATTR void Blocks(const GradientProblem& p, size_t first, size_t count, double* slots) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? RunBlocks<A, LayerNorm>(p, first, count, slots)
                        : RunBlocks<A, RmsNorm>(p, first, count, slots);
}

template <class A>
HWY_ATTR void Finish(const GradientProblem& p, double* sums, size_t runs, size_t distance) noexcept {
  const FpEnvironment environment;
  double* nodes[ColumnTree<A>::kMaxNodes];
  ColumnTree<A> tree(nodes, 2 * p.cols);
  for (size_t i = 0; i < runs; ++i) tree.Push(sums + i * distance);
  FinishColumns<A>(p, {tree.Finish(), 0, p.cols}, p.cols);
}

template <class A, class Norm>
HWY_NOINLINE void LookAtRowRange(const GradientProblem& p, size_t first, size_t count, GradientScalars* scalars) {
  Scratch scratch;
  BackwardRows<A, Norm> rows(p, scratch, {0, p.cols});
  for (size_t row = first, n; row < first + count; row += n) {
    n = HWY_MIN(kRowsAtOnce, first + count - row);
    rows.Look(row, n, {}, scalars + row);
  }
}
template <class A>
HWY_ATTR void Look(const GradientProblem& p, size_t first, size_t count, GradientScalars* scalars) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? LookAtRowRange<A, LayerNorm>(p, first, count, scalars)
                        : LookAtRowRange<A, RmsNorm>(p, first, count, scalars);
}

template <class A, class Norm>
HWY_NOINLINE void RunStrips(const GradientProblem& p, const GradientScalars* scalars, size_t first, size_t count) {
  Scratch scratch;
  double* values = scratch.take<double>(kPiece<A> * column_numbers(p));
  BackwardRows<A, Norm> rows(p, scratch, {first, first + count});
  for (size_t col = first, n; col < first + count; col += n) {
    n = HWY_MIN(kPiece<A>, first + count - col);
    const ColumnSums sums{values, col, kPiece<A>};
    rows.RunStrip(scalars, col, n, sums);
    FinishColumns<A>(p, sums, n);
  }
}
template <class A>
HWY_ATTR void Strip(const GradientProblem& p, const GradientScalars* scalars, size_t first, size_t count) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? RunStrips<A, LayerNorm>(p, scalars, first, count)
                        : RunStrips<A, RmsNorm>(p, scalars, first, count);
}

template <class A>
inline constexpr GradientFunctions kFunctionsOf = {&Rows<A>, &Blocks<A>, &Finish<A>, &Look<A>, &Strip<A>};

const GradientFunctions& Functions(DType arithmetic) {
  return arithmetic == DType::f64 ? kFunctionsOf<double> : kFunctionsOf<float>;
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace evenorm::internal {

const GradientFunctions& gradient_functions(Target target, DType arithmetic) noexcept {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3
    case Target::avx3:
      return N_AVX3::Functions(arithmetic);
#endif
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return N_AVX2::Functions(arithmetic);
#endif
#if HWY_TARGETS & HWY_SSE4
    case Target::sse4:
      return N_SSE4::Functions(arithmetic);
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return N_NEON::Functions(arithmetic);
#endif
    default:
      return N_SCALAR::Functions(arithmetic);
  }
}

}  // namespace evenorm::internal
#endif

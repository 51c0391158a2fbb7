// The moments of rows in parts, and their join: the first half of a norm over a split axis. Included once per target.
#if defined(EVENORM_KERNELS_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EVENORM_KERNELS_PARTS_INL_H_
#undef EVENORM_KERNELS_PARTS_INL_H_
#else
#define EVENORM_KERNELS_PARTS_INL_H_
#endif

#include "kernels/extreme-inl.h"
#include "kernels/fp_environment.hpp"

HWY_BEFORE_NAMESPACE();
namespace evenorm::internal::HWY_NAMESPACE {

// A row's source that knows but one of its blocks, as a row of its own.
template <class A>
class OneBlock {
 public:
  OneBlock(const Source<A>& source, size_t block) : source_(source), first_(block * kBlock) {}

  void SetScale(A scale) { source_.SetScale(scale); }
  const A* Block(size_t row, size_t first, size_t n) { return source_.Block(row, first_ + first, n); }

 private:
  Source<A> source_;
  size_t first_;
};

// f64 arithmetic: a block whose squares left the range, scaled.
template <class Norm>
HWY_NOINLINE Moments ScaledPart(const Source<double>& source, size_t row, size_t block, size_t n) {
  OneBlock<double> part(source, block);
  const double largest = LargestMagnitude(part, row, n);
  if (largest == 0) return {static_cast<double>(n), 0, 0, 0, 0, 0};
  if (!(largest <= std::numeric_limits<double>::max())) return {static_cast<double>(n), largest, 0, largest, 0, 0};
  MomentNode nodes[1];
  MomentTree<Norm, double> tree(nodes);
  const int exponent = SumScaledBlocks<double>(tree, part, row, n, largest);
  Moments moments{};
  StoreMoments(tree.Finish(), &moments);
  moments.exponent = exponent;
  return moments;
}

// NaN throughout, of canonical bits, where anything is not finite.
HWY_INLINE Moments WithoutInfinities(Moments m) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (is_finite(m)) return m;
  return {m.count, kNan, kNan, kNan, kNan, 0};
}

template <class T, class Norm>
HWY_NOINLINE void PartsOfRows(const Problem& p, size_t first, size_t count, Moments* moments) {
  using A = Arithmetic<T>;
  ScratchMemory<kBlockScratchBytes> scratch;
  BlockSource<T> block_source(p, scratch);
  Source<T>& source = block_source.Get();
  const size_t blocks = blocks_of(p.cols);
  for (size_t i = first; i < first + count; ++i) {
    const size_t row = i / blocks, block = i % blocks, n = BlockCols(p.cols, block);
    const T* x = source.Block(row, block * kBlock, n);
    StoreMoments(BlockMomentsOf<Norm, A>(SumBlock<Norm, A>(x, n), n, [=] { return x; }), &moments[i]);
    moments[i].exponent = 0;
    if constexpr (std::is_same_v<A, double>) {
      const double mean_square = moments[i].mean_hi * moments[i].mean_hi + moments[i].m2_hi / moments[i].count;
      const bool safe = mean_square >= kSafeF64.low && mean_square <= kSafeF64.high;
      if (HWY_UNLIKELY(!safe)) moments[i] = ScaledPart<Norm>(source, row, block, n);
    }
    moments[i] = WithoutInfinities(moments[i]);
  }
}
template <class T>
HWY_ATTR void Parts(const Problem& p, size_t first, size_t count, Moments* moments) noexcept {
  const FpEnvironment environment;
  p.kind == Kind::layer ? PartsOfRows<T, LayerNorm>(p, first, count, moments)
                        : PartsOfRows<T, RmsNorm>(p, first, count, moments);
}

template <class A, class Norm>
HWY_NOINLINE Moments JoinOf(const Moments* parts, size_t count) {
  MomentNode nodes[kMaxNodes];
  MomentTree<Norm, A> tree(nodes);
  const int exponent = common_exponent(parts, count);
  for (size_t i = 0; i < count; ++i) tree.Push(LoadMoments<A>(rescaled(parts[i], exponent)));
  Moments moments{};
  StoreMoments(tree.Finish(), &moments);
  moments.exponent = exponent;
  return WithoutInfinities(moments);
}
template <class A>
HWY_ATTR Moments JoinParts(Kind kind, const Moments* parts, size_t count) noexcept {
  const FpEnvironment environment;
  return kind == Kind::layer ? JoinOf<A, LayerNorm>(parts, count) : JoinOf<A, RmsNorm>(parts, count);
}

}  // namespace evenorm::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard

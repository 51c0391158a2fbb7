// The moments of rows in parts, and their join: the first half of a norm over a split axis.
#include "rows/fp_environment.hpp"
#include "rows/rows.hpp"
#include "rows/scaled.hpp"
#include "rows/types.hpp"

namespace evenorm::internal {
namespace {

// A row's source that knows but one of its blocks, as a row of its own.
template <class A>
class OneBlock {
 public:
  OneBlock(const Source<A>& source, std::size_t block) : source_(source), first_(block * kBlock) {}

  void set_scale(A scale) { source_.set_scale(scale); }
  const A* block(std::size_t row, std::size_t first, std::size_t n) { return source_.block(row, first_ + first, n); }

 private:
  Source<A> source_;
  std::size_t first_;
};

Moments with_exponent(const MomentNode& m, std::int64_t exponent) {
  return {m.count, m.mean_hi, m.mean_lo, m.m2_hi, m.m2_lo, exponent};
}

// f64 arithmetic: a block whose squares left the range, scaled.
[[gnu::noinline]] Moments scaled_part(const Kernels& kernels, Kind kind, const Source<double>& source, std::size_t row,
                                      std::size_t block, std::size_t n) {
  OneBlock<double> part(source, block);
  const double largest = largest_magnitude<double>(part, row, n);
  if (largest == 0) return {static_cast<double>(n), 0, 0, 0, 0, 0};
  if (!(largest <= std::numeric_limits<double>::max())) return {static_cast<double>(n), largest, 0, largest, 0, 0};
  MomentNode nodes[1];
  MomentTree<double> tree({nodes, kind == Kind::layer});
  const int exponent = sum_scaled_blocks<double>(kernels, kind, tree, part, row, n, largest);
  return with_exponent(tree.finish(), exponent);
}

// NaN throughout, of canonical bits, where anything is not finite.
Moments without_infinities(const Moments& m) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (is_finite(m)) return m;
  return {m.count, kNan, kNan, kNan, kNan, 0};
}

template <class T>
[[gnu::noinline]] void find_parts(const Kernels& kernels, const Problem& p, std::size_t first, std::size_t count,
                                  Moments* moments) {
  ScratchMemory<kBlockScratchBytes> scratch;
  BlockSource<T> block_source(kernels, p, scratch);
  Source<T>& source = block_source.get();
  const std::size_t blocks = blocks_of(p.cols);
  for (std::size_t i = first; i < first + count; ++i) {
    const std::size_t row = i / blocks, block = i % blocks, n = block_cols(p.cols, block);
    const T* x = source.block(row, block * kBlock, n);
    moments[i] = with_exponent(moments_of_block<T>(kernels, p.kind, x, n), 0);
    if constexpr (std::is_same_v<T, double>) {
      const double mean_square = moments[i].mean_hi * moments[i].mean_hi + moments[i].m2_hi / moments[i].count;
      const bool safe = mean_square >= kSafeF64.low && mean_square <= kSafeF64.high;
      if (!safe) moments[i] = scaled_part(kernels, p.kind, source, row, block, n);
    }
    moments[i] = without_infinities(moments[i]);
  }
}

template <class A>
Moments join(Kind kind, const Moments* parts, std::size_t count) {
  MomentNode nodes[kMaxNodes];
  MomentTree<A> tree({nodes, kind == Kind::layer});
  const int exponent = common_exponent(parts, count);
  for (std::size_t i = 0; i < count; ++i) tree.push(node_of<A>(rescaled(parts[i], exponent)));
  return without_infinities(with_exponent(tree.finish(), exponent));
}

}  // namespace

void parts_of_rows(const Kernels& kernels, const Problem& p, std::size_t first, std::size_t count,
                   Moments* moments) noexcept {
  const FpEnvironment environment;
  with_type(row_type(p), [&]<class T>() { find_parts<T>(kernels, p, first, count, moments); });
}

Moments join_parts(Kind kind, bool wide, const Moments* parts, std::size_t count) noexcept {
  const FpEnvironment environment;
  return wide ? join<double>(kind, parts, count) : join<float>(kind, parts, count);
}

}  // namespace evenorm::internal

// Out-of-range rows (spec.hpp): rows scaled by a power of two, with the same sums and normalise step as others, and
// rows that hold a NaN or an infinity. The backward pass uses the statistics, too. Knows nothing of the order of rows.
#pragma once

#include <cmath>
#include <limits>

#include "rows/moments.hpp"
#include "rows/parameter.hpp"
#include "rows/sink.hpp"
#include "rows/statistics.hpp"

namespace evenorm::internal {

// The largest magnitude of a row, or infinity if an element is not finite.
template <class A, class BlockSource>
A largest_magnitude(BlockSource& source, std::size_t row, std::size_t cols) {
  A largest = 0;
  for (std::size_t block = 0; block < blocks_of(cols); ++block) {
    const std::size_t n = block_cols(cols, block);
    const A* x = source.block(row, block * kBlock, n);
    for (std::size_t i = 0; i < n; ++i) {
      const A magnitude = std::fabs(load_one(x + i));
      if (!(magnitude <= std::numeric_limits<A>::max())) return std::numeric_limits<A>::infinity();
      largest = std::max(largest, magnitude);
    }
  }
  return largest;
}

// The moments of a finite row that is not all zeros. In f64 arithmetic the row, and afterwards the source, is scaled to
// a largest magnitude of about 1. f32 arithmetic needs no scaling, because f64 holds squares of f32.
template <class A, class BlockSource>
Moments scaled_moments(const Kernels& kernels, Kind kind, BlockSource& source, std::size_t row, std::size_t cols,
                       A largest, MomentNode* nodes) {
  MomentTree<A> tree({nodes, kind == Kind::layer});
  const int exponent = std::is_same_v<A, double> ? std::max(std::ilogb(largest), kLeastExponent<A>) : 0;
  source.set_scale(static_cast<A>(std::ldexp(1.0, -exponent)));
  sum_blocks<A>(kernels, kind, tree, source, row, cols, 0, blocks_of(cols));
  return with_exponent(tree.finish(), exponent, static_cast<double>(largest));
}

// The moments of any row: NaN if an element is not finite, 0 if all elements are 0.
template <class A, class BlockSource>
Moments out_of_range_moments(const Kernels& kernels, Kind kind, BlockSource& source, std::size_t row, std::size_t cols,
                             MomentNode* nodes) {
  const A largest = largest_magnitude<A>(source, row, cols);
  const double count = static_cast<double>(cols);
  if (largest == A{0}) return {count, 0, 0, 0, 0, 0, 0};
  if (largest <= std::numeric_limits<A>::max()) {
    return scaled_moments<A>(kernels, kind, source, row, cols, largest, nodes);
  }
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  return {count, kNan, kNan, kNan, kNan, 0, 0};
}

// y with its parameters.
template <class A>
struct NormOutput {
  Parameter<A, 1>& gamma;
  Parameter<A, 0>& beta;
  Sink<A> sink;
};

template <class A>
class OutOfRangeRow {
 public:
  // nodes: room for the nodes of a row's tree.
  OutOfRangeRow(const Kernels& kernels, const Problem& p, Source<A>& source, NormOutput<A>& output, MomentNode* nodes)
      : kernels_(kernels), p_(p), blocks_(blocks_of(p.cols)), source_(source), output_(output), nodes_(nodes) {}

  // unscaled: the same rows as `source`, with scratch of their own.
  void add_sum(const Residual<A>* residual, Source<A>* unscaled) {
    residual_ = residual;
    unscaled_ = unscaled;
  }

  void run(std::size_t row);

 private:
  void run_zeros(std::size_t row);
  void run_scaled(std::size_t row, const Moments& moments);
  void normalise(std::size_t row, const ScaledRow& scaled);
  void fill_nan(std::size_t row);

  // Writes block by block. In each block y comes last, because y, like the sum, may overwrite x or the residual.
  template <class Fill>
  void write(std::size_t row, const Fill& fill);

  const Kernels& kernels_;
  const Problem& p_;
  std::size_t blocks_;
  Source<A>& source_;
  NormOutput<A>& output_;
  MomentNode* nodes_;
  const Residual<A>* residual_ = nullptr;
  Source<A>* unscaled_ = nullptr;
};

}  // namespace evenorm::internal

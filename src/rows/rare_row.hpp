// Rare rows of the forward pass: those that leave the range of their arithmetic, and those that are not finite. The f64
// kernels normalise them, a few columns at a time. Rows of f64 are scaled by a power of two first.
#pragma once

#include "rows/parameter.hpp"
#include "rows/sink.hpp"
#include "rows/statistics.hpp"

namespace evenorm::internal {

// Columns of a rare row that pass through local arrays at once: a chain of the backward pass.
inline constexpr std::size_t kRarePiece = kChainLines * kLanes;

// The scalars of x 2^-exponent, and the statistics of x.
struct RareScalars {
  RowScalars row;
  int exponent;
  double mean, mean_lo, rstd;
  bool by_eps;  // rstd depends on eps alone
};
// Those of a rare row of f64; NaN if an element is not finite. block: room for a block. nodes: room for the nodes of
// the row's tree.
RareScalars rare_scalars(const Kernels& kernels, Kind kind, Source<double>& x, std::size_t row, const Partition& part,
                         double eps, double* block, MomentNode* nodes);
// Whether the squares of a row of f64 that processes share are all 0 or have underflowed: it needs no scaling.
inline bool has_vanished(const Moments& m) { return m.mean * m.mean + plain::MeanOf(plain::kOne, m.m2, m.count) == 0; }

// y and its parameters.
template <class A>
struct NormOutput {
  Parameter<A, 1>& gamma;
  Parameter<A, 0>& beta;
  const Matrix<void*>& y;
  Tile<void*>* tile;
};

template <class A>
class RareRow {
 public:
  // block, nodes: see rare_scalars(); of A.
  RareRow(const Kernels& kernels, const Problem& p, Source<A>& x, NormOutput<A> output, A* block, MomentNode* nodes)
      : kernels_(kernels), p_(p), x_(x), output_(output), block_(block), nodes_(nodes) {}

  // x are sums, which are written, too.
  void add_sum(const Residual<A>* residual) { residual_ = residual; }

  // The row has the moments and the rstd of row `at` of a group.
  void run(std::size_t row, const RowGroup<A>& group, std::size_t at);

 private:
  RareScalars scalars_of_row(std::size_t row, const RowGroup<A>& group, std::size_t at);
  template <class B>
  void write(std::size_t row, std::size_t first, std::size_t n, const double* x,
             const NormScalarsOfRows<double>& scalars, Sink<B>& sink, double* y) const;

  const Kernels& kernels_;
  const Problem& p_;
  Source<A>& x_;
  NormOutput<A> output_;
  A* block_;
  MomentNode* nodes_;
  const Residual<A>* residual_ = nullptr;
};

}  // namespace evenorm::internal

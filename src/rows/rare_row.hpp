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
  Tile<void*>* tile;
};

// Normalises a rare row, which has the moments and the rstd of row `at` of a group. x: where its elements come from.
// sum: x are sums, which are written, too; null: they are not. block, nodes: see rare_scalars(); of A.
template <class A>
void run_rare_row(const Kernels& kernels, const Problem& p, Source<A>& x, const Residual<A>* sum,
                  const NormOutput<A>& output, A* block, MomentNode* nodes, std::size_t row, const RowGroup<A>& group,
                  std::size_t at);

}  // namespace evenorm::internal

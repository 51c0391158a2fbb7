// Rare rows of the forward pass: those that leave the range of their arithmetic, and those that are not finite. The f64
// kernels normalise them, a few columns at a time. Rows of f64 are scaled by a power of two first.
#pragma once

#include "forward/output.hpp"
#include "panels/parameter.hpp"
#include "rows/statistics.hpp"

namespace evenorm::internal {

// Columns of a rare row that pass through local arrays at once: a chain of the backward pass.
inline constexpr std::size_t kRarePiece = kChainSlices * kLanes;

// The scalars of x 2^-exponent, and the statistics of x.
struct RareScalars {
  RowScalars row;
  int exponent;
  double mean, mean_lo, rstd;
  bool by_eps;  // rstd depends on eps alone
};

// Reads a row of any type: read(first, n, to, last) writes columns [first, first + n) to `to` as f64. last: they are
// not read again. It refers to `read`.
class RowReader {
 public:
  template <class Read>
  explicit RowReader(const Read& read)
      : read_(&read), call_([](const void* self, std::size_t first, std::size_t n, double* to, bool last) {
          (*static_cast<const Read*>(self))(first, n, to, last);
        }) {}
  void operator()(std::size_t first, std::size_t n, double* to, bool last = false) const {
    call_(read_, first, n, to, last);
  }

 private:
  const void* read_;
  void (*call_)(const void*, std::size_t, std::size_t, double*, bool);
};

// The scalars of a rare row of f64; NaN if an element is not finite. block: room for a block. nodes: room for the nodes
// of the row's tree.
RareScalars rare_scalars(const Kernels& kernels, Kind kind, const RowReader& x, const Partition& part, double eps,
                         double* block, MomentNode* nodes);
// Whether the squares of a row of f64 that processes share are all 0 or have underflowed: it needs no scaling.
inline bool has_vanished(const Moments& m) { return m.mean * m.mean + plain::MeanOf(plain::kOne, m.m2, m.count) == 0; }

// Normalises a rare row, which has the moments and the rstd of row `at` of a group. block, nodes: see rare_scalars(),
// for f64. y comes last in each piece, because y, like what x writes beside, may overwrite x.
template <class A>
void run_rare_row(const Kernels& kernels, const Problem& p, const RowReader& x, Parameter<A, 1>& gamma,
                  Parameter<A, 0>& beta, double* block, MomentNode* nodes, std::size_t row, const RowGroup<A>& group,
                  std::size_t at);

}  // namespace evenorm::internal

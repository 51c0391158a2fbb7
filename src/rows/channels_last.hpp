// The forward pass of rows whose channels lie side by side, such as groups of channels-last images. Channels, not rows,
// go through the kernels, in place: some of them are summed at once, and all are normalised. Their blocks are joined
// row by row.
#pragma once

#include "plan/forward_plan.hpp"
#include "plan/scratch.hpp"
#include "rows/statistics.hpp"

namespace evenorm::internal {

// Calls run(first, n) for as many rows of a sample as run at once, or row(i), in the order of the problem, for each of
// them if that returns false.
template <class Run, class Row>
void for_samples(const ChannelsLast& place, const ChannelsPlan& plan, std::size_t first, std::size_t count,
                 const Run& run, const Row& row) {
  for (std::size_t i = first, n; i < first + count; i += n) {
    n = std::min(first + count - i, place.groups - i % place.groups);
    if (n > plan.rows + place.groups % place.unit) n = plan.rows;
    if (run(i, n)) continue;
    for (std::size_t k = i; k < i + n; ++k) row(place.row(k));
  }
}

template <class T>
class ChannelsLastRows {
 public:
  using A = Arithmetic<T>;

  ChannelsLastRows(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, const ChannelsLast& place,
                   const Scratch& scratch);

  // Rows [first, first + count) of one sample, in the order of ChannelsLast::row(). Returns false if they must go
  // through tiles, because one of them is out of range or a parameter is not finite. y is not written then.
  bool run(std::size_t first, std::size_t count);

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  // What a pass over the positions adds to the lanes of each channel: `column` is that of position 0, and no position
  // from `end` on is needed. next: where the next block begins or ends, or kNone.
  struct Pass {
    std::size_t column[kChannelsAtOnce], end[kChannelsAtOnce], next[kChannelsAtOnce];
    std::size_t most = 0;  // of `end`
  };

  std::size_t row_of(std::size_t line) const { return place_.row(first_ + line / place_.channels); }
  std::size_t channel_of(std::size_t line) const { return line % place_.channels; }
  template <class Pointer>
  char* at(const Matrix<Pointer>& m, std::size_t line) const;
  bool load(const SetVector& v, std::size_t row, bool plus_one, A absent, A* to) const;

  void sum(std::size_t line);
  Pass pass_of(std::size_t line, std::size_t ahead) const;
  void settle(Pass& pass, std::size_t line, std::size_t position);
  void settle_group(Pass& pass, std::size_t line, std::size_t position, std::size_t first);
  bool ends_block(std::size_t column) const { return column % kBlock == 0 || column == p_.cols; }
  bool take_lanes(std::size_t column, std::size_t position, std::size_t i, double* to);
  bool finish_row(std::size_t line);
  void normalise(std::size_t line, std::size_t lines);

  const Kernels& kernels_;
  const Problem& p_;
  const ForwardPlan& plan_;
  const ChannelsLast& place_;
  double* lanes_;
  MomentNode* row_nodes_;  // of tree_
  MomentNode* nodes_;      // of subtrees_, nodes_of_channel() for each
  A* scalars_;             // lines_ numbers of each: centre, offset, rstd, gamma, beta
  Tile<const void*> tile_;
  Source<T> source_;
  MomentTree<A> tree_;
  MomentSubtrees<A> subtrees_[kChannelsAtOnce];  // of the blocks that begin in each channel
  std::size_t first_ = 0, lines_ = 0;
  std::size_t at_once_ = 0;                                  // channels that are summed at once
  alignas(64) double ordered_[2 * kLanes * kMaxGroup] = {};  // the lanes of kMaxGroup channels
  RowGroup<A> group_;
};

}  // namespace evenorm::internal

// The forward pass over a range of rows: source -> sums -> statistics -> normalise -> sink. Rows go through a pipeline
// in groups. While one group is normalised, the next but one is summed. The statistics of the next group are finished
// in between: by then its sums have left the store buffer, and divisions overlap with the normalise step. This order
// affects no bit. The class decides the order of blocks and the arguments of kernels. It knows nothing of threads.
#pragma once

#include <optional>

#include "plan/forward_plan.hpp"
#include "rows/rare_row.hpp"

namespace evenorm::internal {

template <class T>
class ForwardRows {
 public:
  using A = Arithmetic<T>;

  // set: that of the rows. used: the columns that are normalised. reduces: the rows are reduced first, over all of
  // their columns.
  ForwardRows(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, Scratch& scratch, std::size_t set,
              ColumnRange used, bool reduces);

  void run(std::size_t first, std::size_t count);
  // Some columns, divided as `part` says.
  void normalise_part(std::size_t row, const RowScalars& scalars, std::size_t first_col, const Partition& part);

 private:
  using Group = RowGroup<A>;
  using Tree = MomentRowTree<A>;

  // Blocks of up to kMaxGroup rows, ready to be normalised.
  struct Blocks {
    std::size_t row, first;
    NormaliseRows<T> rows;
  };

  // What only fused passes have.
  struct Fusion {
    Residual<T> residual;
    HeldSums<T> held;
    Quantiser<A> quantiser;
  };

  // The context of hooks in the pipeline of short rows: where a stage's group begins, and how many rows it has.
  struct StageContext {
    std::size_t row(std::size_t stage) const { return first + stage * group; }
    std::size_t rows(std::size_t stage) const { return std::min(group, count - stage * group); }

    ForwardRows* self;
    std::size_t first, group, count;
  };

  void fuse(Scratch& scratch, bool reduces);
  std::size_t normalised_at_once(std::size_t row, std::size_t rows) const;

  void open(const Part& part);
  void close();

  void run_short_rows(std::size_t first, std::size_t count);
  std::optional<ShortRows<T>> even_short_rows(std::size_t first, std::size_t count);
  void add_hooks(ShortRows<T>& rows, StageContext& context) const;
  std::size_t run_pipeline(const ShortRows<T>& rows, std::size_t first, std::size_t stage);
  void sum_short_rows(Group& g, std::size_t first_row, std::size_t from, std::size_t to);
  void finish_short_rows(Group& g, std::size_t first_row, std::size_t rows);
  void normalise_short_rows(const Group& g, std::size_t row, std::size_t rows, Group& later, std::size_t later_row,
                            std::size_t later_rows);

  void run_long_rows(std::size_t first, std::size_t count);
  void sum_long_rows(Group& g, std::size_t row, std::size_t rows);
  void finish_long_row(Group& g, std::size_t at, Tree& tree, std::size_t row);
  void normalise_long_row(const Group& g, std::size_t row, Group& later, std::size_t later_row, Tree& tree);
  void normalise_long_rows_in_place(const Group& g, std::size_t row, std::size_t rows, Group& later,
                                    std::size_t later_row, Tree* trees);
  void normalise_row(std::size_t row, const Group& g, std::size_t at);
  void normalise_finished_row(std::size_t row, const Group& g, std::size_t at);

  void run_precomputed(std::size_t first, std::size_t count);

  void run_blocks(std::size_t first, std::size_t count);

  void store_statistics(const Group& g, std::size_t at, std::size_t first_row, std::size_t rows);
  void run_rare(std::size_t row, const Group& g, std::size_t at);
  bool reads_in_place() const;
  bool are_even(std::size_t first, std::size_t count) const;

  Affine<A> affine_of(std::size_t first, std::size_t n);
  Blocks block_of_row(std::size_t row, const Partition::Block& block, const NormScalarsOfRows<A>& scalars,
                      std::size_t at = 0);
  Blocks blocks_of_rows(std::size_t row, std::size_t rows, std::size_t first, std::size_t n, const Affine<A>& affine,
                        const NormScalarsOfRows<A>& scalars, std::size_t at);
  SumRows<T> sums_of_rows(std::size_t row, std::size_t rows, std::size_t first, std::size_t n, Group& g,
                          std::size_t at);
  void normalise(const Blocks& b);
  void normalise_and_sum(const Blocks& b, const SumRows<T>& next);
  void store_sums_beside(const Blocks& b);
  void finish_block(const Blocks& b);

  bool is_centred() const { return p_.kind == Kind::layer; }

  const Kernels& kernels_;
  const StorageKernels<T>& of_type_;
  const Problem& p_;
  const ForwardPlan& plan_;
  Partition part_;
  A* x_scratch_;
  Parameter<A, 1> gamma_;
  Parameter<A, 0> beta_;
  MomentNode* nodes_;  // for the trees of rows of several blocks, or of one rare row
  Tile<const void*> x_tile_;
  Tile<void*> y_tile_;
  Source<T> sum_source_, normalise_source_;
  Sink<T> sink_;
  std::optional<Fusion> fusion_;
  bool writes_beside_ = false;  // the sum is written by calls of its own
  bool copies_sum_ = false;     // the normalise step also writes the sum
  bool only_numbers_;           // neither the parameters nor precomputed statistics can turn a number into a NaN
  bool stream_;
  std::size_t ahead_;  // the prefetch distance of what is summed, in bytes; 0: none
  Group groups_[kGroups];
};

}  // namespace evenorm::internal

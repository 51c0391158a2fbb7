// The forward pass over a range of rows, or over a part of a long one: input -> sums -> statistics -> normalise ->
// output, in the order of the plan. That order affects no bit. It knows nothing of threads.
#pragma once

#include "plan/forward_plan.hpp"
#include "rows/input.hpp"
#include "rows/output.hpp"
#include "rows/rare_row.hpp"

namespace evenorm::internal {

template <class T>
class ForwardRows {
 public:
  using A = Arithmetic<T>;

  // set: that of the rows. used: the columns that are normalised.
  ForwardRows(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, Scratch& scratch, std::size_t set,
              ColumnRange used);

  void run(std::size_t first, std::size_t count);
  // Normalises some columns, divided as `part` says, of a row that is finished.
  void normalise_part(std::size_t row, const RowScalars& scalars, std::size_t first_col, const Partition& part);

 private:
  using Group = RowGroup<A>;

  // Rows that go block by block together, with their statistics, from row `at` of a group on, and their slot of memory.
  struct Together {
    Part block(const Partition::Block& columns) const { return {first, count, columns.first, columns.n}; }

    std::size_t first, count;
    Group* group;
    std::size_t at, slot;
  };
  // What the kernel of groups calls back with.
  struct Groups;

  void run_groups(std::size_t first, std::size_t count);
  void run_rare_group(const Groups& groups, std::size_t t);

  void run_blocks(std::size_t first, std::size_t count);
  void find_statistics(const Together& rows);
  void plant(MomentRowTree<A>* trees, std::size_t count) const;
  void finish(const Together& rows, MomentRowTree<A>* trees);
  void normalise(const Together& rows);
  void normalise(const Together& rows, const Part& part);
  void normalise_beside(const Together& rows, const Together& next);
  void normalise_rare(const Together& row);
  NormaliseRows<T> to_normalise(const Together& rows, const Part& part);
  SumRows<T> to_sum(const Together& rows, const Part& part) const;

  void run_rare(std::size_t row, const Group& g, std::size_t at, const RowReader& read);
  void store_statistics(const Group& g, std::size_t first, std::size_t count) const;
  Affine<A> affine_of(std::size_t first, std::size_t n);
  bool is_centred() const { return p_.kind == Kind::layer; }

  const Kernels& kernels_;
  const Problem& p_;
  const ForwardPlan& plan_;
  Scratch& scratch_;
  Partition partition_;
  Parameter<A, 1> gamma_;
  Parameter<A, 0> beta_;
  Input<T> input_;
  Output<T> output_;
  Group groups_[kGroups];
};

}  // namespace evenorm::internal

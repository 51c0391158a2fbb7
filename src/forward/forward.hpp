// What both orders of the forward pass share: the tensors as kernels take them, the statistics of rows, and rare rows.
#pragma once

#include "forward/rare_row.hpp"

namespace evenorm::internal {

template <class T>
struct ForwardState {
  using A = Arithmetic<T>;

  // set: that of the rows. used: the columns that are normalised.
  ForwardState(const Kernels& of_target, const Problem& problem, const ForwardPlan& its_plan, Scratch& memory,
               std::size_t set, ColumnRange used)
      : kernels(of_target),
        p(problem),
        plan(its_plan),
        scratch(memory),
        gamma(kernels, p.gamma, set, p.zero_centered, p.cols, used, scratch.span<A>(plan.scratch.gamma)),
        beta(kernels, p.beta, set, false, p.cols, used, scratch.span<A>(plan.scratch.beta)),
        input(kernels, p, plan, scratch),
        output(kernels, p, plan, scratch, gamma.is_finite() && beta.is_finite() && p.moments == nullptr) {}

  bool is_centred() const { return p.kind == Kind::layer; }
  void store_statistics(const RowGroup<A>& g, std::size_t first, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) {
      store_statistic(p.mean, first + i, g.mean[i]);
      store_statistic(p.rstd, first + i, g.rstd[i]);
    }
  }
  // Normalises a rare row, whose statistics are those of row `at` of a group. copy: where its elements go, too, if they
  // are sums; read(first, n, last) returns some of them. last: they are not read again.
  template <class Read>
  [[gnu::noinline]] void normalise_rare(std::size_t row, const RowGroup<A>& g, std::size_t at, T* copy,
                                        const Read& read) {
    const auto read_wide = [&](std::size_t first, std::size_t n, double* to, bool last) {
      const T* const x = read(first, n, last);
      kernels.convert[index_of(dtype_of<T>)][index_of(DType::f64)](x, to, n);
      if (last && copy != nullptr) std::memcpy(static_cast<void*>(copy + first), x, n * sizeof(T));
    };
    run_rare_row<A>(kernels, p, RowReader(read_wide), gamma, beta, scratch.at<double>(plan.scratch.block),
                    scratch.at<MomentNode>(plan.scratch.nodes), row, g, at);
  }

  const Kernels& kernels;
  const Problem& p;
  const ForwardPlan& plan;
  Scratch& scratch;
  Parameter<A, 1> gamma;
  Parameter<A, 0> beta;
  Input<T> input;
  Output<T> output;
  RowGroup<A> groups[kGroups];
};

// Normalises rows [first, first + count) in the planned order, which affects no bit.
template <class T>
void run_groups(ForwardState<T>& state, std::size_t first, std::size_t count);
template <class T>
void run_blocks(ForwardState<T>& state, std::size_t first, std::size_t count);
// Normalises some columns, divided as `part` says, of a row that is finished.
template <class T>
void normalise_part(ForwardState<T>& state, std::size_t row, const RowScalars& scalars, std::size_t first_col,
                    const Partition& part);

}  // namespace evenorm::internal

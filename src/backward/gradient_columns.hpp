// Sums over rows: their place in memory, their tree, and what becomes of them: dgamma and dbeta.
#pragma once

#include <algorithm>

#include "plan/gradient_plan.hpp"
#include "rows/join.hpp"

namespace evenorm::internal {

// Sums of n columns, which are cleared: dgamma, then dbeta. chains: kChainsOfColumn of `length` >= n numbers each.
template <class A>
GradientColumns<A> cleared_columns(double* sums, std::size_t n, A* chains, std::size_t length) {
  std::fill_n(sums, 2 * n, 0.0);
  return {chains, chains + length, {sums, sums + n}, static_cast<std::ptrdiff_t>(2 * length)};
}

// Shares of row blocks, in the tree of a row's blocks; the left one takes the right one up.
struct JoinColumns {
  using Part = double*;

  Part join(Part left, Part right) const {
    kernels->add_columns(left, right, count);
    return left;
  }
  Part load(std::size_t node) const { return nodes[node]; }
  void store(Part part, std::size_t node) const { nodes[node] = part; }

  const Kernels* kernels = nullptr;
  double** nodes = nullptr;
  std::size_t count = 0;  // of dgamma and dbeta together
};
using ColumnTree = JoinTree<JoinColumns>;

// `count` columns of a set from column `first` on, from their sums; rounded once. A sum that is not finite is a NaN.
// What the elements hold is added if it is asked for. If columns share elements, these are all columns, or all runs of
// them.
void finish_columns(const Kernels& kernels, const GradientProblem& p, std::size_t set, double* sums, std::size_t first,
                    std::size_t count);

}  // namespace evenorm::internal

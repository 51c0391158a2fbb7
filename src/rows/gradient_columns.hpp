// Sums over rows: their tree, and what becomes of them: dgamma and dbeta.
#pragma once

#include "plan/numbers.hpp"
#include "rows/join.hpp"

namespace evenorm::internal {

// Places of column `col` in sums.
template <class A>
GradientColumns<A> columns_at(const ColumnSums& sums, std::size_t col) {
  if (sums.values == nullptr) return {};
  const std::size_t at = col - sums.first;
  double* dgamma = sums.values + at;
  A* chain = static_cast<A*>(sums.chains) + at;
  return {chain, chain + chain_length<A>(sums.stride), {dgamma, dgamma + sums.stride}};
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

// `count` columns of a set from sums.first on, rounded once; a sum that is not finite is a NaN. What the elements hold
// is added if it is asked for. If columns share elements, these are all columns, or all runs of them.
void finish_columns(const Kernels& kernels, const GradientProblem& p, std::size_t set, const ColumnSums& sums,
                    std::size_t count);

}  // namespace evenorm::internal

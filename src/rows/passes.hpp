// The functions that a schedule calls: passes over some rows, or over parts of one row. Each sets the floating-point
// environment, selects the type and provides scratch; forward.hpp and backward_*.hpp choose kernels. They are
// compiled once, for kernels of any target. They do not throw or allocate, and know nothing of threads.
#pragma once

#include <cstddef>

#include "kernels/kernels.hpp"
#include "plan/numbers.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

struct ForwardPlan;   // plan/forward_plan.hpp
struct GradientPlan;  // plan/gradient_plan.hpp

// Normalises rows [first, first + count).
void run_forward(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, std::size_t first,
                 std::size_t count) noexcept;

// One long row in parts: returns the joined moments of columns from `first_col` on, divided as `part` says. 2^k runs,
// or blocks of the only run, that begin at a multiple of 2^k are a subtree of the row's trees.
MomentNode part_moments(const Kernels& kernels, const Problem& p, std::size_t row, std::size_t first_col,
                        const Partition& part) noexcept;
// Joins the moments of equal subtrees (the last may be smaller), finishes the row and stores its statistics.
RowScalars finish_row(const Problem& p, std::size_t row, const MomentNode* parts, std::size_t count) noexcept;
// Normalises such a part.
void normalise_part(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, std::size_t row,
                    const RowScalars& scalars, std::size_t first_col, const Partition& part) noexcept;

// Computes dx of rows [first, first + count), if wanted. Sums over runs of columns, if
// wanted, go to each row's slot of `sums`, which has slot_of_row() numbers; finish_row_blocks() joins them.
void run_backward(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                  std::size_t count, double* sums) noexcept;

// Computes dx of row blocks [first, first + count), if wanted, and their sums over rows. The joined sums go to the
// first of `slots`. There must be as many slots as row blocks, each of sums_bytes(). 2^k blocks that begin at a
// multiple of 2^k are a subtree of the join.
void run_row_blocks(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                    std::size_t count, double* slots) noexcept;
// Joins the sums of `shares` such calls, each for equally many row blocks except the last, which begin `distance`
// numbers apart; or those of `shares` rows of one set. Then writes dgamma and dbeta of the set.
void finish_row_blocks(const Kernels& kernels, const GradientProblem& p, std::size_t set, double* sums,
                       std::size_t shares, std::size_t distance) noexcept;

// The same in two steps, for few long rows that form a single row block. First find_row_scalars() computes the scalars
// of some rows; `scalars` has one element for each row of the problem. Then run_columns() computes all gradients of
// columns [first, first + count) of a problem with these scalars.
void find_row_scalars(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                      std::size_t count, GradientScalars* scalars) noexcept;
void run_columns(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                 std::size_t count) noexcept;

}  // namespace evenorm::internal

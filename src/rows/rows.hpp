// What a schedule shares out: the passes over some rows, or over parts of one. Each sets the thread's floating-point
// environment, finds the type and has scratch; which kernels work on which block is for forward.hpp and backward.hpp.
// Compiled once, for whatever target the kernels are of. Does not throw or allocate; knows nothing of threads.
#pragma once

#include <cstddef>

#include "kernels/kernels.hpp"
#include "plan/numbers.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

struct ForwardPlan;   // plan/forward_plan.hpp
struct GradientPlan;  // plan/gradient_plan.hpp

// Rows [first, first + count) of the problem, x to y.
void run_forward(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, std::size_t first,
                 std::size_t count) noexcept;

// One long row in parts. The moments of its blocks [first, first + count), joined: 2^k blocks from a multiple of 2^k on
// are a subtree of the join.
MomentNode block_moments(const Kernels& kernels, const Problem& p, std::size_t row, std::size_t first,
                         std::size_t count) noexcept;
// Joins the moments of equal subtrees (the last may be smaller), finishes the row and stores its statistics.
RowScalars finish_row(const Problem& p, std::size_t row, const MomentNode* parts, std::size_t count) noexcept;
// Normalises blocks [first, first + count).
void map_blocks(const Kernels& kernels, const Problem& p, const ForwardPlan& plan, std::size_t row,
                const RowScalars& scalars, std::size_t first, std::size_t count) noexcept;

// dx of rows [first, first + count), where nothing is summed over rows.
void run_backward(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                  std::size_t count) noexcept;

// Row blocks [first, first + count): dx, where it is asked for, and their sums over all columns, joined, to the first
// of `slots`, each of sums_bytes(); there must be as many slots as row blocks. 2^k blocks from a multiple
// of 2^k on are a subtree of the join.
void run_row_blocks(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                    std::size_t count, double* slots) noexcept;
// Joins such runs of row blocks, all but the last of one length, that begin `distance` numbers apart; then writes
// dgamma and dbeta.
void finish_row_blocks(const Kernels& kernels, const GradientProblem& p, double* sums, std::size_t runs,
                       std::size_t distance) noexcept;

// The same in two steps, for few long rows, where there is but one row block: the scalars of some rows, one element of
// `scalars` for each row of the problem; then all gradients of columns [first, first + count).
void find_row_scalars(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, std::size_t first,
                  std::size_t count, GradientScalars* scalars) noexcept;
void run_columns(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan,
                 const GradientScalars* scalars, std::size_t first, std::size_t count) noexcept;

}  // namespace evenorm::internal

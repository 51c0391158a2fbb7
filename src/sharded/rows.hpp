// The work of one process on rows of which it has some columns: it computes a message from its columns, and finishes
// the rows from the messages of all processes. Nothing here throws or allocates.
#pragma once

#include <span>

#include "kernels/kernels.hpp"
#include "plan/gradient_plan.hpp"
#include "problem/problem.hpp"
#include "sharded/messages.hpp"

namespace evenorm::internal {

// Forward: writes the moments of the parts of rows [first, first + count) to a message. `message` is the address of row
// 0.
void moments_of_shards(const Kernels& kernels, const Problem& p, const Cuts& cuts, std::size_t first, std::size_t count,
                       double* message) noexcept;
// Computes the moments of all whole rows from the messages of all processes.
void join_shards(const Cuts& cuts, Kind kind, bool wide, const Messages& messages, std::span<Moments> moments) noexcept;

// Backward: the first writes the sums of the parts of rows to a message, the second computes the scalars of whole rows
// from the messages of all processes. p.moments are those of whole rows.
void sums_of_shards(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Cuts& cuts,
                    std::size_t first, std::size_t count, double* message) noexcept;
void finish_shards(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Cuts& cuts,
                   const Messages& messages, std::size_t first, std::size_t count, GradientScalars* scalars) noexcept;

}  // namespace evenorm::internal

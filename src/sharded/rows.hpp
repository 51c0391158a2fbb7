// What each process does with the rows of which it has some columns: it finds a message from its columns, and finishes
// the rows from the messages of all processes. Does not throw or allocate; knows nothing of threads.
#pragma once

#include <span>

#include "kernels/kernels.hpp"
#include "plan/gradient_plan.hpp"
#include "problem/problem.hpp"
#include "sharded/messages.hpp"

namespace evenorm::internal {

// Forward: the moments of the runs of rows [first, first + count), as a message; `message` is where that of row 0 would
// be.
void moments_of_shards(const Kernels& kernels, const Problem& p, const Cuts& cuts, std::size_t first, std::size_t count,
                       double* message) noexcept;
// The moments of all whole rows, from the messages of all processes.
void join_shards(const Cuts& cuts, Kind kind, bool wide, const Messages& messages, std::span<Moments> moments) noexcept;

// Backward, where the problem has the moments of whole rows: the sums of the runs of rows, as a message; and the
// scalars of whole rows, from the messages of all processes.
void sums_of_shards(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Cuts& cuts,
                    std::size_t first, std::size_t count, double* message) noexcept;
void finish_shards(const Kernels& kernels, const GradientProblem& p, const GradientPlan& plan, const Cuts& cuts,
                   const Messages& messages, std::size_t first, std::size_t count, GradientScalars* scalars) noexcept;

}  // namespace evenorm::internal

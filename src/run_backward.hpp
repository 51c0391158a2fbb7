// Running a validated backward pass: sharing row blocks, or columns of long rows, over an executor.
#pragma once

#include <cstddef>

#include "dispatch.hpp"
#include "evenorm/evenorm.hpp"
#include "problem.hpp"

namespace evenorm::internal {

// Bytes of scratch that run_problem wants; 0 where it wants none.
std::size_t scratch_bytes(const GradientProblem& problem) noexcept;

// Runs a validated problem on a supported target. scratch: scratch_bytes(problem) at any address. Does not throw,
// allocate or print. Sets in the problem how this run uses the caches.
void run_problem(GradientProblem& problem, Target target, std::byte* scratch, const Executor& executor) noexcept;

// Validates and runs on one target, for tests. Allocates the scratch. Throws Error.
void run_on(Target target, const Backward& backward, const Executor& executor = {});

}  // namespace evenorm::internal

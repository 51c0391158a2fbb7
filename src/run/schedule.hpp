// Runs a validated problem: divides rows, blocks of long rows, row blocks or columns among the tasks of an executor.
// The division depends only on the problem, or does not affect the bits. rows/passes.hpp does the work of each task.
#pragma once

#include <cstddef>

#include "evenorm/evenorm.hpp"
#include "plan/forward_plan.hpp"
#include "plan/gradient_plan.hpp"
#include "run/dispatch.hpp"

namespace evenorm::internal {

// Runs a validated pass. Does not allocate. scratch: pass.plan.scratch_bytes bytes at any address.
void run(const ForwardPass& pass, const Kernels& kernels, const Executor& executor) noexcept;
void run(const GradientPass& pass, const Kernels& kernels, std::byte* scratch, const Executor& executor) noexcept;

// Validates a pass and runs it on a supported target, whatever EVENORM_TARGET says. A backward pass allocates its
// scratch. Throws Error as evenorm::run does.
void run_on(Target target, const Forward& forward, const Executor& executor = {});
void run_on(Target target, const Backward& backward, const Executor& executor = {});

}  // namespace evenorm::internal

// Running a validated problem: sharing rows, or blocks of long rows, over an executor.
#pragma once

#include <span>

#include "dispatch.hpp"
#include "evenorm/evenorm.hpp"
#include "problem.hpp"

namespace evenorm::internal {

// Runs a validated problem with the row functions given. Does not throw, allocate or print. What is set in the problem
// is how this run goes (cache use, which y): it is no more to be run again.
void run_problem(Problem& problem, const RowFunctions& functions, const Executor& executor) noexcept;

// Validates and runs `forward` on one target, whatever EVENORM_TARGET says: for tests and `evenorm check`.
// The target must be supported. Throws Error as evenorm::run does.
void run_on(Target target, const Forward& forward, const Executor& executor = {});

// The same of evenorm::run(RowMoments) and of evenorm::join.
void run_on(Target target, const RowMoments& rows, std::span<Moments> parts, const Executor& executor = {});
Moments join_on(Target target, Kind kind, std::span<const Moments> parts, bool wide);

}  // namespace evenorm::internal

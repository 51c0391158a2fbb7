// Turns a pass of the API into a Problem, and refuses what is wrong with it. Throws Error; writes nothing.
#pragma once

#include <cstddef>
#include <span>

#include "evenorm/evenorm.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// Checks everything except how buffers overlap.
Problem validate(const Forward& forward);
GradientProblem validate(const Backward& backward);

// The same for passes whose weight, bias and their gradients must have one element for each column.
Problem validate_plain(const Forward& forward);
GradientProblem validate_plain(const Backward& backward);

// Check that x, y and dy are not null and that no output overlaps another buffer or itself. y and the sum may be x or
// the residual, and dx may be dy, dsum or x. moments: those that a pass writes, one per row, or null. scratch: checked
// if it is not empty. tensors_fit: only scratch is checked, because the tensors have been.
void validate_buffers(const Problem& problem, const Moments* moments = nullptr);
void validate_buffers(const GradientProblem& problem, std::span<const std::byte> scratch = {},
                      bool tensors_fit = false);
void check_scratch_size(std::span<const std::byte> scratch, std::size_t needed);

}  // namespace evenorm::internal

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

// A step of validate(): adds f's fused forms to p, which has everything else.
class Layouts;
void add_fused(const Forward& f, Layouts& layouts, Problem& p);

// Check that x, y and dy are not null and that no output overlaps another buffer or itself. y and the sum may be x or
// the residual, and dx may be dy, dsum or x. Scratch is checked as by validate_scratch().
void validate_buffers(const Problem& problem);
void validate_buffers(const GradientProblem& problem, std::span<const std::byte> scratch = {});
// Checks that the moments that a pass writes, one per row or none, overlap no tensor.
void validate_moments(const Problem& problem, const Moments* written);
// Checks that scratch, if not empty, is not null and overlaps no tensor.
void validate_scratch(const GradientProblem& problem, std::span<const std::byte> scratch);
void check_scratch_size(std::span<const std::byte> scratch, std::size_t needed);

}  // namespace evenorm::internal

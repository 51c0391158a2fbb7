// From a description by tensors to a Problem: the one place that rejects. Throws Error; writes nothing.
#pragma once

#include <cstddef>
#include <span>

#include "evenorm/evenorm.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal {

// Checks everything but how buffers lie to each other.
Problem validate(const Forward& forward);
GradientProblem validate(const Backward& backward);

// A part of the first: the fused forms, from f to p, which has all else.
class Layouts;
void add_fused(const Forward& f, Layouts& layouts, Problem& p);

// Checks that every address is there, and that no output overlaps anything, but for what is done in place: y x, or
// the residual; the sum likewise.
void validate_buffers(const Problem& problem);
// That moments that a pass writes, one for each row or none, overlap no tensor.
void validate_moments(const Problem& problem, const Moments* written);
// The same for dx, which may be dy, dsum or x; and what validate_scratch() checks.
void validate_buffers(const GradientProblem& problem, std::span<const std::byte> scratch = {});
// That scratch, where there is some, is there and overlaps no tensor; that there is enough of it.
void validate_scratch(const GradientProblem& problem, std::span<const std::byte> scratch);
void check_scratch_size(std::span<const std::byte> scratch, std::size_t needed);

}  // namespace evenorm::internal

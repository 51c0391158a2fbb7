// From a description by tensors to a Problem: the one place that rejects. Throws Error; writes nothing.
#pragma once

#include <cstddef>
#include <span>

#include "evenorm/evenorm.hpp"
#include "problem.hpp"

namespace evenorm::internal {

// Checks everything but how buffers lie to each other.
Problem validate(const Forward& forward);
GradientProblem validate(const Backward& backward);

// Checks that every address is there, and that no output overlaps anything but y its own x.
void validate_buffers(const Problem& problem);
// The same for dx, which may be dy or x; and that scratch, where there is some, overlaps nothing.
void validate_buffers(const GradientProblem& problem, std::span<const std::byte> scratch);

}  // namespace evenorm::internal

// From a description by tensors to a Problem: the one place that rejects. Throws Error; writes nothing.
#pragma once

#include "evenorm/evenorm.hpp"
#include "problem.hpp"

namespace evenorm::internal {

// Checks everything but how buffers lie to each other.
Problem validate(const Forward& forward);

// Checks that every address is there, and that no output overlaps anything but y its own x.
void validate_buffers(const Problem& problem);

}  // namespace evenorm::internal

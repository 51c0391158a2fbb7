// The backward pass of f32 arithmetic on a GPU.
#pragma once

#include "cuda/forward.hpp"

namespace evenorm::internal::cuda {

// The bytes of scratch that a pass takes. Throws Error if it has f64 arithmetic.
std::size_t backward_scratch_bytes(const GradientProblem& p);

// Enqueues a pass. scratch is in the device's memory, at a multiple of 8 bytes. Throws as run_forward() does.
void run_backward(const GradientProblem& p, void* scratch, const evenorm::cuda::Stream& on);

}  // namespace evenorm::internal::cuda

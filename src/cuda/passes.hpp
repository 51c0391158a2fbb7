// The passes on a GPU. They throw Error if the device cannot take the tensors, and std::runtime_error if CUDA fails.
#pragma once

#include "evenorm/cuda.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal::cuda {

// Enqueues a pass over tensors in the device's memory.
void run_forward(const Problem& p, const evenorm::cuda::Stream& on);

// The same; scratch is in the device's memory, at a multiple of 8 bytes.
std::size_t backward_scratch_bytes(const GradientProblem& p);
void run_backward(const GradientProblem& p, void* scratch, const evenorm::cuda::Stream& on);

}  // namespace evenorm::internal::cuda

// The forward pass on a GPU.
#pragma once

#include "evenorm/cuda.hpp"
#include "problem/problem.hpp"

namespace evenorm::internal::cuda {

// Enqueues a pass over tensors in the device's memory. Throws Error if the device cannot take the tensors' layout, and
// std::runtime_error if CUDA fails.
void run_forward(const Problem& p, const evenorm::cuda::Stream& on);

}  // namespace evenorm::internal::cuda

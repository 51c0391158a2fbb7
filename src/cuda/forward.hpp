// The forward pass on a GPU.
#pragma once

#include "problem/problem.hpp"

namespace evenorm::internal::cuda {

// A device's stream: a cudaStream_t, or null for the device's default stream.
struct DeviceStream {
  int device;
  void* stream;
};

// Enqueues a pass over tensors in the device's memory. Throws Error if the device cannot take the tensors' layout, and
// std::runtime_error if CUDA fails.
void run_forward(const Problem& p, const DeviceStream& on);

}  // namespace evenorm::internal::cuda

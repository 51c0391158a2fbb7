// evenorm on a GPU, in libraries that are built with EVENORM_CUDA. The results are bit-identical to those on a CPU, but
// for rows that leave the range of f32 (docs/cuda.md). There is no f64 arithmetic.
//
// A GPU needs compute capability 9.0 or later. A call enqueues the pass on a stream and returns before it is done. It
// allocates no memory, so a CUDA graph can capture it. Each tensor is in memory that the device can reach, and its
// address is a multiple of its element's size.
#pragma once

#include "evenorm/evenorm.hpp"

namespace evenorm::cuda {

// Where a pass runs. If the device is not the current one, it is so during the call.
struct Stream {
  int device = 0;
  void* stream = nullptr;  // a cudaStream_t of this device; nullptr is its default stream
};

// Validates a forward pass and enqueues it. Rows and columns may each lie along at most 4 axes, after neighbouring axes
// are merged where their strides allow it. Throws Error, and std::runtime_error if CUDA fails.
EVENORM_API void run(const Forward& forward, const Stream& stream = {});

// Validates a backward pass and enqueues it. scratch is device memory of at least scratch_bytes() bytes, at a multiple
// of 8 bytes, that overlaps no tensor and is in use until the pass is done. Throws as above.
EVENORM_API std::size_t scratch_bytes(const Backward& backward);
EVENORM_API void run(const Backward& backward, std::span<std::byte> scratch, const Stream& stream = {});

}  // namespace evenorm::cuda

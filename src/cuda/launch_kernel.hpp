// One launch of a kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "evenorm/evenorm.hpp"

namespace evenorm::internal::cuda {

struct LaunchSize {
  std::size_t thread_blocks;
  unsigned threads;      // of a thread block
  unsigned shared = 0;   // bytes of dynamic shared memory of a thread block
  unsigned cluster = 1;  // thread blocks
};

// Throws Error if the problem has too many rows.
template <class Arguments, class... More>
cudaError_t launch_kernel(void (*kernel)(Arguments, More...), const LaunchSize& size, cudaStream_t stream,
                          const Arguments& arguments, More... more) {
  constexpr std::size_t kMost = 0x7FFFFFFF;
  if (size.thread_blocks > kMost) {
    throw Error("the tensors have more rows than a GPU can take at once: " + std::to_string(size.thread_blocks) +
                " thread blocks; the most is " + std::to_string(kMost));
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {size.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = {static_cast<unsigned>(size.thread_blocks), 1, 1};
  config.blockDim = {size.threads, 1, 1};
  config.dynamicSmemBytes = size.shared;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments, more...);
}

}  // namespace evenorm::internal::cuda

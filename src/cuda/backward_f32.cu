// The backward kernels for f32 tensors.
#include "cuda/backward_launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_f32(const BackwardArguments& p, DType, cudaStream_t stream) {
  return launch_plain<float, float>(p, stream);
}

}  // namespace evenorm::internal::cuda

// The backward kernels for f16 tensors.
#include "cuda/backward_launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_f16(const BackwardArguments& p, DType gamma, cudaStream_t stream) {
  return gamma == DType::f32 ? launch_plain<float16, float>(p, stream) : launch_plain<float16, float16>(p, stream);
}

}  // namespace evenorm::internal::cuda

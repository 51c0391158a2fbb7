// The backward kernels for bf16 tensors.
#include "cuda/backward_launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_bf16(const BackwardArguments& p, DType gamma, cudaStream_t stream) {
  return gamma == DType::f32 ? launch_plain<bfloat16, float>(p, stream) : launch_plain<bfloat16, bfloat16>(p, stream);
}

}  // namespace evenorm::internal::cuda

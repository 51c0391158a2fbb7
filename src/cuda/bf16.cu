// The kernels for bf16 tensors, with gamma and beta of that type or f32.
#include "cuda/backward_launch.cuh"
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t forward_bf16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return launch_typed<bfloat16>(p, form, stream);
}
cudaError_t backward_bf16(const BackwardArguments& p, DType gamma, cudaStream_t stream) {
  return launch_typed<bfloat16>(p, gamma, stream);
}

}  // namespace evenorm::internal::cuda

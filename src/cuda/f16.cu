// The kernels for f16 tensors, with gamma and beta of that type or f32.
#include "cuda/backward_launch.cuh"
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t forward_f16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return launch_typed<float16>(p, form, stream);
}
cudaError_t backward_f16(const BackwardArguments& p, DType gamma, cudaStream_t stream) {
  return launch_typed<float16>(p, gamma, stream);
}

}  // namespace evenorm::internal::cuda

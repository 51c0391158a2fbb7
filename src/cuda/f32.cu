// The kernels for f32 tensors.
#include "cuda/backward_launch.cuh"
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t forward_f32(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return launch_typed<float>(p, form, stream);
}
cudaError_t backward_f32(const BackwardArguments& p, DType gamma, cudaStream_t stream) {
  return launch_typed<float>(p, gamma, stream);
}

}  // namespace evenorm::internal::cuda

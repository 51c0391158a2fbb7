// The kernels for f32 tensors.
#include "cuda/backward_launch.cuh"
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t forward_f32(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return launch_typed<float, float>(p, form, stream);
}
cudaError_t backward_f32(const BackwardArguments& p, DType, cudaStream_t stream) {
  return BackwardLaunch<TypedColumns<float, float>>::run(p, stream);
}

}  // namespace evenorm::internal::cuda

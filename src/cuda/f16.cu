// The kernels for f16 tensors, with gamma and beta of that type or f32.
#include "cuda/backward_launch.cuh"
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t forward_f16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return form.parameters == DType::f32 ? launch_typed<float16, float>(p, form, stream)
                                       : launch_typed<float16, float16>(p, form, stream);
}
cudaError_t backward_f16(const BackwardArguments& p, DType gamma, cudaStream_t stream) {
  return gamma == DType::f32 ? BackwardLaunch<TypedColumns<float16, float>>::run(p, stream)
                             : BackwardLaunch<TypedColumns<float16, float16>>::run(p, stream);
}

}  // namespace evenorm::internal::cuda

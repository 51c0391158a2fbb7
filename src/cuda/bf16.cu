// The kernels for bf16 tensors, with gamma and beta of that type or f32.
#include "cuda/backward_launch.cuh"
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t forward_bf16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return form.parameters == DType::f32 ? launch_typed<bfloat16, float>(p, form, stream)
                                       : launch_typed<bfloat16, bfloat16>(p, form, stream);
}
cudaError_t backward_bf16(const BackwardArguments& p, DType gamma, cudaStream_t stream) {
  return gamma == DType::f32 ? BackwardLaunch<TypedColumns<bfloat16, float>>::run(p, stream)
                             : BackwardLaunch<TypedColumns<bfloat16, bfloat16>>::run(p, stream);
}

}  // namespace evenorm::internal::cuda

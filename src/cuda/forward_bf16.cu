// The forward kernels for bf16 tensors.
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_bf16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return form.parameters == DType::f32 ? launch_typed<bfloat16, float>(p, form, stream)
                                       : launch_typed<bfloat16, bfloat16>(p, form, stream);
}

}  // namespace evenorm::internal::cuda

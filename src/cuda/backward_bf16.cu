// The backward kernels for bf16 tensors.
#include "cuda/backward_launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_bf16(const BackwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return form.parameters == DType::f32 ? launch_typed<bfloat16, float>(p, stream)
                                       : launch_typed<bfloat16, bfloat16>(p, stream);
}

}  // namespace evenorm::internal::cuda

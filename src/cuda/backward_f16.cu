// The backward kernels for f16 tensors.
#include "cuda/backward_launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_f16(const BackwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return form.parameters == DType::f32 ? launch_typed<float16, float>(p, stream)
                                       : launch_typed<float16, float16>(p, stream);
}

}  // namespace evenorm::internal::cuda

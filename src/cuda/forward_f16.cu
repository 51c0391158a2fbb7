// The forward kernels for f16 tensors.
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_f16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return form.parameters == DType::f32 ? launch_typed<float16, float>(p, form, stream)
                                       : launch_typed<float16, float16>(p, form, stream);
}

}  // namespace evenorm::internal::cuda

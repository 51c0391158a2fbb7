// The forward kernels for f32 tensors.
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_f32(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return launch_typed<float, float>(p, form, stream);
}

}  // namespace evenorm::internal::cuda

// The forward kernels for f64 tensors.
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_f64(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream) {
  return launch_typed<double, double>(p, form, stream);
}

}  // namespace evenorm::internal::cuda

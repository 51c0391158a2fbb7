// The forward kernels for all other types and layouts.
#include "cuda/launch.cuh"

namespace evenorm::internal::cuda {

cudaError_t launch_any(DType arithmetic, const ForwardArguments& p, cudaStream_t stream) {
  return arithmetic == DType::f64 ? Launch<AnyForm<double>>::run(p, stream) : Launch<AnyForm<float>>::run(p, stream);
}

}  // namespace evenorm::internal::cuda

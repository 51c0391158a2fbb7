// The backward kernels by the types that they are compiled for: one function a type, in a file of its own; and what
// makes dgamma and dbeta of the sums of row blocks.
#pragma once

#include <cuda_runtime.h>

#include "cuda/backward_arguments.hpp"

namespace evenorm::internal::cuda {

// gamma: its type, that of x or f32.
cudaError_t launch_f32(const BackwardArguments& p, DType gamma, cudaStream_t stream);
cudaError_t launch_bf16(const BackwardArguments& p, DType gamma, cudaStream_t stream);
cudaError_t launch_f16(const BackwardArguments& p, DType gamma, cudaStream_t stream);
cudaError_t launch_any(const BackwardArguments& p, cudaStream_t stream);

// Adds to what dgamma and dbeta hold if `accumulate`; each may be absent.
struct ColumnArguments {
  const double* sums;  // as in BackwardArguments
  std::size_t row_blocks, cols;
  bool accumulate;
  DeviceVector<char> dgamma, dbeta;
};
cudaError_t finish_columns(const ColumnArguments& p, cudaStream_t stream);

}  // namespace evenorm::internal::cuda

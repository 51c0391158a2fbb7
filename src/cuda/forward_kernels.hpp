// The forward kernels by the types that they are compiled for: one function a type, in a file of its own.
#pragma once

#include <cuda_runtime.h>

#include "cuda/forward_arguments.hpp"

namespace evenorm::internal::cuda {

// What a pass's tensors allow.
struct FormOfPass {
  // The tensors of x's shape are dense rows of one type along one axis; gamma and beta are dense, of that type or f32.
  bool typed;
  bool vectors;      // every row, gamma and beta begin at multiples of a vector's size, and rows end there
  DType parameters;  // the type of gamma and beta
};

cudaError_t launch_f32(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream);
cudaError_t launch_bf16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream);
cudaError_t launch_f16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream);
cudaError_t launch_f64(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream);
// For any types: `arithmetic` is f32 or f64.
cudaError_t launch_any(DType arithmetic, const ForwardArguments& p, cudaStream_t stream);

}  // namespace evenorm::internal::cuda

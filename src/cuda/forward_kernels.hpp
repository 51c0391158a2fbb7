// The arguments of the forward kernels, and the kernels by the types that they are compiled for.
#pragma once

#include <cuda_runtime.h>

#include "cuda/tensors.cuh"
#include "kernels/kernels.hpp"

namespace evenorm::internal::cuda {

struct ForwardArguments {
  std::size_t rows = 0, cols = 0;
  Count count = 0;      // cols
  bool centred = true;  // layer norm
  bool zero_centered = false;
  double eps = 0;
  double residual_scale = 1;
  float given_scale = 0;
  DeviceMatrix<const char> x, residual;
  DeviceMatrix<char> y, sum;
  DeviceVector<const char> gamma, beta;
  DeviceVector<char> mean, rstd, scale;
};

// What a pass's tensors allow.
struct FormOfPass {
  // The tensors of x's shape are dense rows of one type along one axis; gamma and beta are dense, of that type or f32.
  bool typed;
  bool vectors;      // every row, gamma and beta begin at multiples of a vector's size, and rows end there
  DType parameters;  // the type of gamma and beta
};

// One for each type of x, in a file of its own, and one for all types.
cudaError_t forward_f32(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream);
cudaError_t forward_bf16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream);
cudaError_t forward_f16(const ForwardArguments& p, const FormOfPass& form, cudaStream_t stream);
cudaError_t forward_any(const ForwardArguments& p, cudaStream_t stream);

}  // namespace evenorm::internal::cuda

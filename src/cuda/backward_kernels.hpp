// The arguments of the backward kernels; the kernels by the types that they are compiled for; and what makes dgamma and
// dbeta of the sums of row blocks.
#pragma once

#include <cuda_runtime.h>

#include "cuda/tensors.cuh"

namespace evenorm::internal::cuda {

// Into how many row blocks a pass without sums over rows is shared out at most.
inline constexpr std::size_t kMostRowShares = 4096;

struct BackwardArguments {
  std::size_t rows = 0, cols = 0;
  std::size_t row_blocks = 0;  // each is one cluster's work
  bool centred = true;         // layer norm
  bool zero_centered = false;
  bool writes_dx = false;
  DeviceMatrix<const char> x, dy, dsum;
  DeviceMatrix<char> dx;
  DeviceVector<const char> gamma;
  DeviceVector<const char> mean, rstd;  // f64
  // dgamma and dbeta of each row block, `cols` numbers of each; null if neither is wanted.
  double* sums = nullptr;
  float* first_chains = nullptr;  // as many
  // One for each row block. A kernel for plain rows sets those of row blocks that need another kernel; that one takes
  // only these. Null: it takes all.
  int* flags = nullptr;
};

// gamma: its type, that of x or f32.
cudaError_t backward_f32(const BackwardArguments& p, DType gamma, cudaStream_t stream);
cudaError_t backward_bf16(const BackwardArguments& p, DType gamma, cudaStream_t stream);
cudaError_t backward_f16(const BackwardArguments& p, DType gamma, cudaStream_t stream);
cudaError_t backward_any(const BackwardArguments& p, cudaStream_t stream);

// Adds to what dgamma and dbeta hold if `accumulate`; each may be absent.
struct ColumnArguments {
  const double* sums;  // as in BackwardArguments
  std::size_t row_blocks, cols;
  bool accumulate;
  DeviceVector<char> dgamma, dbeta;
};
cudaError_t finish_columns(const ColumnArguments& p, cudaStream_t stream);

}  // namespace evenorm::internal::cuda

// The arguments of the backward kernels.
#pragma once

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
  // One for each row block. A kernel for plain rows sets those of row blocks that need another kernel; that one takes
  // only these. Null: it takes all.
  int* flags = nullptr;
};

}  // namespace evenorm::internal::cuda

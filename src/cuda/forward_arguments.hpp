// The arguments of the forward kernels, and which kernel a pass takes.
#pragma once

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

}  // namespace evenorm::internal::cuda

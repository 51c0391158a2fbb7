// A problem's buffers as PyTorch's tensors, for the rivals that are called through PyTorch.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "bench/rival.h"

namespace evenorm::bench {

inline at::ScalarType type_of(std::int32_t dtype) {
  constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};  // as in bench_dtype
  return kTypes[dtype];
}

// Parameters are of x's type, or f32 with 16-bit x.
inline bool has_types(const bench_problem& problem) {
  if (problem.parameter_dtype == problem.dtype) return true;
  return problem.parameter_dtype == BENCH_F32 && (problem.dtype == BENCH_BF16 || problem.dtype == BENCH_F16);
}

// Returns an undefined tensor, PyTorch's form of an absent parameter, if data is null.
inline at::Tensor tensor_at(const void* data, at::IntArrayRef shape, at::ScalarType type) {
  return data == nullptr ? at::Tensor() : at::from_blob(const_cast<void*>(data), shape, type);
}

struct Tensors {
  explicit Tensors(const bench_problem& problem) : cols(problem.cols) {
    const at::ScalarType type = type_of(problem.dtype), parameter_type = type_of(problem.parameter_dtype);
    const bool channels_first = problem.pass == BENCH_CHANNELS_FIRST;
    const std::vector<std::int64_t> shape = channels_first
                                                ? std::vector{problem.rows / problem.pixels, cols, problem.pixels}
                                                : std::vector{problem.rows, cols};
    x = tensor_at(problem.x, shape, type);
    residual = tensor_at(problem.residual, shape, type);
    dy = tensor_at(problem.dy, shape, type);
    weight = tensor_at(problem.weight, cols, parameter_type);
    bias = tensor_at(problem.bias, cols, parameter_type);
    y = tensor_at(problem.y, shape, type);
    sum = tensor_at(problem.sum, shape, type);
    dx = tensor_at(problem.dx, shape, type);
    dweight = tensor_at(problem.dweight, cols, parameter_type);
    dbias = tensor_at(problem.dbias, cols, parameter_type);
  }

  std::int64_t cols;
  at::Tensor x, residual, dy, weight, bias, y, sum, dx, dweight, dbias;
};

}  // namespace evenorm::bench

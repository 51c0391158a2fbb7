// The norm that `apply` and `grad` run, as plain data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "cli/files/npy.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

// weight and bias are borrowed.
struct Norm {
  Kind kind = Kind::layer;
  std::vector<std::size_t> axes{};  // the normalised axes, ascending
  const Array* weight = nullptr;
  const Array* bias = nullptr;
  double eps = 1e-5;
  bool zero_centered = false;
  std::size_t threads = 1;  // 0: one per processor
};

// The type of dweight and dbias from the types of x, dy, dx and the weight: f64 if one of them is f64, otherwise f32.
inline DType parameter_gradient_dtype(std::initializer_list<DType> types) {
  return std::ranges::find(types, DType::f64) != types.end() ? DType::f64 : DType::f32;
}

}  // namespace evenorm::cli

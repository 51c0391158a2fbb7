// The norm that `apply` and `grad` run, as plain data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include "cli/common/layout.hpp"
#include "cli/files/npy.hpp"
#include "evenorm/evenorm.hpp"

namespace evenorm::cli {

// A weight or bias, which is borrowed. With groups of channels its shape is not that of the file; see Norm.
struct NormParameter {
  const Array* array = nullptr;
  Shape shape{};  // that of the normalised axes, or with all axes of Norm::shape

  bool present() const noexcept { return array->present(); }
  ConstTensor view() const noexcept { return {array->bytes().data(), array->dtype(), shape, {}}; }
};

struct Norm {
  Kind kind = Kind::layer;
  std::int64_t groups = 0;          // of channels; 0: none
  Shape shape{};                    // x's, in_groups()
  std::vector<std::size_t> axes{};  // the normalised axes of this shape, ascending
  NormParameter weight{}, bias{};
  double eps = 1e-5;
  bool zero_centered = false;
  std::size_t threads = 1;  // 0: one per processor
};

// The type of dweight and dbias from the types of x, dy, dx and the weight: f64 if one of them is f64, otherwise f32.
inline DType parameter_gradient_dtype(std::initializer_list<DType> types) {
  return std::ranges::find(types, DType::f64) != types.end() ? DType::f64 : DType::f32;
}

}  // namespace evenorm::cli

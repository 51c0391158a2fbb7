// What the eager functions of evenorm.torch and libtorch take: conditions on tensors that are described without
// PyTorch's headers. An absent parameter has no data.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "evenorm/evenorm.hpp"

namespace evenorm::torch_binding {

inline constexpr std::size_t kMostAxes = 64;  // the library's limit

// The number of elements.
inline std::int64_t size_of(std::span<const std::int64_t> shape) {
  std::int64_t size = 1;
  for (const std::int64_t n : shape) size *= n;
  return size;
}

// True if x has at most kMostAxes axes and ends in the axes `shape`, which have elements, weight has that shape or x's
// axes, each as long as x's or 1, bias has weight's shape, or without a weight that one, and eps is finite and >= 0.
inline bool is_norm(const ConstTensor& x, std::span<const std::int64_t> shape, const ConstTensor& weight,
                    const ConstTensor& bias, double eps) {
  if (shape.empty() || shape.size() > x.shape.size() || x.shape.size() > kMostAxes || size_of(shape) == 0) return false;
  const std::span<const std::int64_t> of_weight = weight.data == nullptr ? shape : std::span(weight.shape);
  const auto broadcasts = [](std::int64_t n, std::int64_t size) { return n == 1 || n == size; };
  return std::ranges::equal(std::span(x.shape).last(shape.size()), shape) &&
         (std::ranges::equal(of_weight, shape) || std::ranges::equal(of_weight, x.shape, broadcasts)) &&
         (bias.data == nullptr || std::ranges::equal(bias.shape, of_weight)) && eps >= 0 && std::isfinite(eps);
}

// True if weight and bias have one type that PyTorch's layer norm allows: x's, or float32 with a 16-bit x.
inline bool has_parameter_types(DType x, const ConstTensor& weight, const ConstTensor& bias) {
  const bool is_short = x == DType::bf16 || x == DType::f16;
  const auto fits = [&](const ConstTensor& t) {
    return t.data == nullptr || t.dtype == x || (t.dtype == DType::f32 && is_short);
  };
  return fits(weight) && fits(bias) && (weight.data == nullptr || bias.data == nullptr || weight.dtype == bias.dtype);
}

// RMS norm's eps by default: the machine epsilon of x's type, or of float32 for 16-bit types.
inline double default_eps(DType x) {
  return x == DType::f64 ? std::numeric_limits<double>::epsilon()
                         : static_cast<double>(std::numeric_limits<float>::epsilon());
}

// True if residual has x's shape and scale is finite in float32.
inline bool can_add(const ConstTensor& x, const ConstTensor& residual, double scale) {
  return std::ranges::equal(x.shape, residual.shape) && std::isfinite(static_cast<float>(scale));
}

}  // namespace evenorm::torch_binding

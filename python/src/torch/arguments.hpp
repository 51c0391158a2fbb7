// The arguments that the operators accept. Python and libtorch check them with these functions, and leave everything
// else, errors included, to PyTorch's own functions. An absent parameter has no value, never an undefined tensor.
#pragma once

#include "operators.hpp"

namespace evenorm::torch_binding {

// Nothing for a type that evenorm does not have.
std::optional<DType> dtype_of(at::ScalarType type);

// True for strided CPU tensors of float64, float32, bfloat16 or float16.
bool is_supported(const Tensor& t);

// True if weight and bias have one type that PyTorch's layer norm allows: x's, or float32 with a 16-bit x.
bool has_parameter_types(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias);

// True if x ends in the axes `shape`, which have elements, the parameters have that shape, and eps is finite and >= 0.
bool is_norm(const Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
             double eps);

// The same for group norm: x has at least two axes, and weight and bias have an element for each of its channels.
// PyTorch's function refuses a single element for each statistic.
bool is_group_norm(const Tensor& x, std::int64_t groups, const OptionalTensor& weight, const OptionalTensor& bias,
                   double eps);

// The eps of RMS norm: by default the machine epsilon of x's type, or of float32 for 16-bit types.
double eps_or_default(const std::optional<double>& eps, const Tensor& x);

// True if residual has x's shape and scale is finite in float32.
bool can_add(const Tensor& x, const Tensor& residual, double scale);

}  // namespace evenorm::torch_binding

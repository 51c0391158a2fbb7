// Which tensors the operators take, for both that call them: what is not taken is PyTorch's own function's, and so are
// its errors. An absent parameter has no value; an undefined tensor is none.
#pragma once

#include "operators.hpp"

namespace evenorm::torch_binding {

// On the CPU, strided, of a type that the core has.
bool is_supported(const Tensor& t);

// PyTorch's layer norm has parameters of x's type, or of f32 beside 16-bit types; both of one.
bool has_parameter_types(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias);

// Rows of x over a shape of at least one element, eps that the core takes.
bool is_norm(const Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
             double eps);

// RMS norm's, where none is given: the machine epsilon, of f32 where x has 16 bits.
double eps_or_default(const std::optional<double>& eps, const Tensor& x);

bool can_add(const Tensor& x, const Tensor& residual, double scale);

}  // namespace evenorm::torch_binding

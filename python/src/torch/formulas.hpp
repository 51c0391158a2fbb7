// Rarely used derivatives, composed of PyTorch's differentiable operators in f64: forward mode, and derivatives of the
// gradients. Derivatives of any order follow from these. Derivation: docs/math.md, "derivatives of gradients".
#pragma once

#include "operators.hpp"

namespace evenorm::torch_binding {

// A kind of norm with its settings.
struct Norm {
  Kind kind;
  std::size_t axes;  // number of trailing axes that are normalised together
  double eps;
};

// The tangent of y, of x's type, for tangents of x, weight and bias. At least one tangent is defined; weight may be
// undefined. The result shares no memory with the arguments.
at::Tensor forward_tangent(const Norm& norm, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& x_tangent,
                           const at::Tensor& weight_tangent, const at::Tensor& bias_tangent);

// The backward pass as differentiable operators. dx and dweight have the types of x and weight, dbias is f64. The
// results share no memory with dy or its tangent.
Gradients composed_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight);

// The gradients of <of.dx, dx> + <of.dweight, dweight> + <of.dbias, dbias> with respect to dy, x and weight, in their
// types. Any tensor in `of` may be undefined.
struct SecondGradients {
  at::Tensor dy, x, weight;
};
SecondGradients double_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                const Gradients& of);

}  // namespace evenorm::torch_binding

// Derivatives that are rarely asked for, composed of PyTorch's own differentiable operators in f64: forward mode, and
// the derivatives of the gradients. Any order follows from these. Derivation: docs/math.md, "derivatives of gradients".
#pragma once

#include "operators.hpp"

namespace evenorm::torch_binding {

// One norm, and what it is of. weight may be undefined.
struct Norm {
  Kind kind;
  std::size_t axes;  // how many trailing ones are normalised together
  double eps;
};

// The change of y for changes of x, weight and bias, at least one of which is defined; of x's type. Shares no memory
// with them.
at::Tensor forward_tangent(const Norm& norm, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& x_tangent,
                           const at::Tensor& weight_tangent, const at::Tensor& bias_tangent);

// The backward pass itself, of which forward mode can be taken; of the types given (dbias: f64). Shares no memory with
// dy or its tangent.
Gradients composed_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight);

// The gradients of <of_dx, dx> + <of_dweight, dweight> + <of_dbias, dbias>, as functions of dy, x and weight; of their
// types. Any of of_* may be undefined.
struct SecondGradients {
  at::Tensor dy, x, weight;
};
SecondGradients double_backward(const Norm& norm, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                const Gradients& of);

}  // namespace evenorm::torch_binding

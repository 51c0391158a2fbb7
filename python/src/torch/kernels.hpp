// The operators' computations on the CPU, without the dispatcher. Derivatives call them to keep statistics between
// passes.
#pragma once

#include "operators.hpp"

namespace evenorm::torch_binding {

// *statistics receives the rows' statistics in f64: rstd of shape (1, rows), or mean and rstd of shape (2, rows). Pass
// null if they are not needed. `place` receives y, and may be x; null makes a new tensor.
Tensor cpu_norm(Kind kind, const Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                const OptionalTensor& bias, double eps, Tensor* statistics = nullptr, const Tensor* place = nullptr);
TwoTensors cpu_add_norm(Kind kind, const Tensor& x, const Tensor& residual, SymIntArrayRef normalized_shape,
                        const OptionalTensor& weight, const OptionalTensor& bias, double eps, double residual_scale,
                        Tensor* statistics = nullptr);
// statistics: what cpu_norm or cpu_add_norm wrote for this x (or sum), shape and eps; undefined to recompute them.
Gradients cpu_norm_backward(Kind kind, const Tensor& dy, const Tensor& x, SymIntArrayRef normalized_shape,
                            const OptionalTensor& weight, std::optional<at::ScalarType> bias_dtype, double eps,
                            std::array<bool, 3> output_mask, const OptionalTensor& dsum, const Tensor& statistics = {});

}  // namespace evenorm::torch_binding

// What the operators compute on the CPU, for callers that know that the dispatcher would come here: derivatives, which
// keep statistics from pass to pass.
#pragma once

#include "operators.hpp"

namespace evenorm::torch_binding {

// Statistics of rows: f64, (1, rows) of rstd, or (2, rows) of mean and rstd. Null, or undefined: not wanted, not known.
Tensor cpu_norm(Kind kind, const Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                const OptionalTensor& bias, double eps, Tensor* statistics = nullptr);
TwoTensors cpu_add_norm(Kind kind, const Tensor& x, const Tensor& residual, SymIntArrayRef normalized_shape,
                        const OptionalTensor& weight, const OptionalTensor& bias, double eps, double residual_scale,
                        Tensor* statistics = nullptr);
// statistics: what one of the two wrote for this x (the sum), shape and eps.
Gradients cpu_norm_backward(Kind kind, const Tensor& dy, const Tensor& x, SymIntArrayRef normalized_shape,
                            const OptionalTensor& weight, std::optional<at::ScalarType> bias_dtype, double eps,
                            std::array<bool, 3> output_mask, const OptionalTensor& dsum, const Tensor& statistics = {});

}  // namespace evenorm::torch_binding

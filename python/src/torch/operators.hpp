// The operators of library `evenorm` in PyTorch's dispatcher: their types, and handles to call them through it.
// What they compute: kernels.cpp (on the CPU); their derivatives: autograd.cpp. Schemas: operators.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <optional>
#include <tuple>

#include "evenorm/evenorm.hpp"

namespace evenorm::torch_binding {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using OptionalTensor = std::optional<Tensor>;
using TwoTensors = std::tuple<Tensor, Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

// Of one norm; undefined where they are not asked for.
struct Gradients {
  Tensor dx, dweight, dbias;
};

// The signatures of the schemas, with a trailing argument less for RMS norm wherever bias is concerned.
using LayerNorm = Tensor(const Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                         const OptionalTensor& bias, double eps);
using RmsNorm = Tensor(const Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight, double eps);
using AddLayerNorm = TwoTensors(const Tensor& x, const Tensor& residual, SymIntArrayRef normalized_shape,
                                const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                                double residual_scale);
using AddRmsNorm = TwoTensors(const Tensor& x, const Tensor& residual, SymIntArrayRef normalized_shape,
                              const OptionalTensor& weight, double eps, double residual_scale);
// Gradients that output_mask leaves out are tensors of no elements. bias_dtype: of dbias; absent: of x.
using LayerNormBackward = ThreeTensors(const Tensor& dy, const Tensor& x, SymIntArrayRef normalized_shape,
                                       const OptionalTensor& weight, std::optional<at::ScalarType> bias_dtype,
                                       double eps, std::array<bool, 3> output_mask, const OptionalTensor& dsum);
using RmsNormBackward = TwoTensors(const Tensor& dy, const Tensor& x, SymIntArrayRef normalized_shape,
                                   const OptionalTensor& weight, double eps, std::array<bool, 2> output_mask,
                                   const OptionalTensor& dsum);

// Whether this library's are the process's operators: false where another that holds this code was loaded before
// (evenorm::torch in a Python process, beside evenorm.torch): those are used then. To be asked at registration.
bool registers_operators();

template <class Signature>
using Operator = c10::TypedOperatorHandle<Signature>;

const Operator<LayerNorm>& layer_norm_operator();
const Operator<RmsNorm>& rms_norm_operator();
const Operator<AddLayerNorm>& add_layer_norm_operator();
const Operator<AddRmsNorm>& add_rms_norm_operator();
const Operator<LayerNormBackward>& layer_norm_backward_operator();
const Operator<RmsNormBackward>& rms_norm_backward_operator();

}  // namespace evenorm::torch_binding

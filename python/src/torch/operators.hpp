// The operators of the library `evenorm` in PyTorch's dispatcher: their signatures, and handles to call them.
// kernels.cpp implements them on the CPU, autograd.cpp has their derivatives, operators.cpp their schemas.
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
inline bool is_given(const OptionalTensor& t) { return t.has_value() && t->defined(); }
using TwoTensors = std::tuple<Tensor, Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

// Gradients of one norm; undefined if not requested.
struct Gradients {
  Tensor dx, dweight, dbias;
};

// The signatures of the schemas, which are the same for layer and RMS norm.
using NormSchema = Tensor(const Tensor& x, SymIntArrayRef normalized_shape, const OptionalTensor& weight,
                          const OptionalTensor& bias, double eps);
using AddNormSchema = TwoTensors(const Tensor& x, const Tensor& residual, SymIntArrayRef normalized_shape,
                                 const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                                 double residual_scale);
// Gradients that output_mask leaves out are empty tensors. bias_dtype is dbias's type; by default it is x's.
using NormBackwardSchema = ThreeTensors(const Tensor& dy, const Tensor& x, SymIntArrayRef normalized_shape,
                                        const OptionalTensor& weight, std::optional<at::ScalarType> bias_dtype,
                                        double eps, std::array<bool, 3> output_mask, const OptionalTensor& dsum);
using GroupNormSchema = Tensor(const Tensor& x, SymInt num_groups, const OptionalTensor& weight,
                               const OptionalTensor& bias, double eps);

// True if this library registers the operators. False if another library with this code was loaded before in the same
// process (such as evenorm::torch before evenorm.torch); its operators are used then. Call at registration.
bool registers_operators();

template <class Signature>
using Operator = c10::TypedOperatorHandle<Signature>;

const Operator<NormSchema>& norm_operator(Kind kind);                   // evenorm::layer_norm, evenorm::rms_norm
const Operator<AddNormSchema>& add_norm_operator(Kind kind);            // evenorm::add_layer_norm, ...
const Operator<NormBackwardSchema>& norm_backward_operator(Kind kind);  // evenorm::layer_norm_backward, ...
const Operator<GroupNormSchema>& group_norm_operator();

}  // namespace evenorm::torch_binding

// The operators' schemas and handles.
#include "operators.hpp"

#include <torch/library.h>

namespace evenorm::torch_binding {

bool registers_operators() {
  static const bool first = !c10::Dispatcher::singleton().findSchema({"evenorm::layer_norm", ""}).has_value();
  return first;
}

TORCH_LIBRARY_FRAGMENT(evenorm, m) {  // a second TORCH_LIBRARY would throw
  if (!registers_operators()) return;
  m.def(
      "layer_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5)"
      " -> Tensor");
  m.def("rms_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float eps=1e-5) -> Tensor");
  m.def(
      "add_layer_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None,"
      " float eps=1e-5, float residual_scale=1.0) -> (Tensor y, Tensor sum)");
  m.def(
      "add_rms_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, float eps=1e-5,"
      " float residual_scale=1.0) -> (Tensor y, Tensor sum)");
  m.def(
      "layer_norm_backward(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? weight, ScalarType? bias_dtype,"
      " float eps, bool[3] output_mask, Tensor? dsum=None) -> (Tensor dx, Tensor dweight, Tensor dbias)");
  m.def(
      "rms_norm_backward(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? weight, float eps,"
      " bool[2] output_mask, Tensor? dsum=None) -> (Tensor dx, Tensor dweight)");
}

namespace {

template <class Signature>
Operator<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

const Operator<LayerNorm>& layer_norm_operator() {
  static const auto handle = find<LayerNorm>("evenorm::layer_norm");
  return handle;
}
const Operator<RmsNorm>& rms_norm_operator() {
  static const auto handle = find<RmsNorm>("evenorm::rms_norm");
  return handle;
}
const Operator<AddLayerNorm>& add_layer_norm_operator() {
  static const auto handle = find<AddLayerNorm>("evenorm::add_layer_norm");
  return handle;
}
const Operator<AddRmsNorm>& add_rms_norm_operator() {
  static const auto handle = find<AddRmsNorm>("evenorm::add_rms_norm");
  return handle;
}
const Operator<LayerNormBackward>& layer_norm_backward_operator() {
  static const auto handle = find<LayerNormBackward>("evenorm::layer_norm_backward");
  return handle;
}
const Operator<RmsNormBackward>& rms_norm_backward_operator() {
  static const auto handle = find<RmsNormBackward>("evenorm::rms_norm_backward");
  return handle;
}

}  // namespace evenorm::torch_binding

// The modules of evenorm/torch.hpp: their parameters and how they print. functions.cpp computes the norms.
#include <ostream>

#include "evenorm/torch.hpp"

namespace evenorm::torch {
namespace {

void print_shape(std::ostream& stream, const char* name, const std::vector<std::int64_t>& shape) {
  stream << std::boolalpha << name << '(' << at::IntArrayRef(shape);
}

}  // namespace

LayerNormImpl::LayerNormImpl(LayerNormOptions given) : options(std::move(given)) { LayerNormImpl::reset(); }

void LayerNormImpl::reset() {
  const auto parameter = [&](const char* name, bool present) {
    return register_parameter(name, present ? at::empty(options.normalized_shape()) : at::Tensor(), present);
  };
  weight = parameter("weight", options.elementwise_affine());
  bias = parameter("bias", options.elementwise_affine() && options.bias());
  reset_parameters();
}

void LayerNormImpl::reset_parameters() {
  const at::NoGradGuard guard;
  if (weight.defined()) weight.fill_(options.zero_centered() ? 0 : 1);
  if (bias.defined()) bias.zero_();
}

void LayerNormImpl::pretty_print(std::ostream& stream) const {
  print_shape(stream, "evenorm::torch::LayerNorm", options.normalized_shape());
  stream << ", eps=" << options.eps() << ", elementwise_affine=" << options.elementwise_affine()
         << ", bias=" << options.bias() << (options.zero_centered() ? ", zero_centered=true)" : ")");
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  return layer_norm(x, options.normalized_shape(), weight, bias, options.eps(), options.zero_centered());
}

RMSNormImpl::RMSNormImpl(RMSNormOptions given) : options(std::move(given)) { RMSNormImpl::reset(); }

void RMSNormImpl::reset() {
  const bool present = options.elementwise_affine();
  weight = register_parameter("weight", present ? at::empty(options.normalized_shape()) : at::Tensor(), present);
  reset_parameters();
}

void RMSNormImpl::reset_parameters() {
  const at::NoGradGuard guard;
  if (weight.defined()) weight.fill_(options.zero_centered() ? 0 : 1);
}

void RMSNormImpl::pretty_print(std::ostream& stream) const {
  print_shape(stream, "evenorm::torch::RMSNorm", options.normalized_shape());
  if (options.eps().has_value()) stream << ", eps=" << *options.eps();
  stream << ", elementwise_affine=" << options.elementwise_affine()
         << (options.zero_centered() ? ", zero_centered=true)" : ")");
}

at::Tensor RMSNormImpl::forward(const at::Tensor& x) {
  return rms_norm(x, options.normalized_shape(), weight, options.eps(), options.zero_centered());
}

}  // namespace evenorm::torch

// The functions of evenorm/torch.hpp: each call goes to evenorm's operator or to PyTorch's own function.
#include "arguments.hpp"
#include "evenorm/torch.hpp"
#include "operators.hpp"

namespace evenorm::torch {
namespace {

namespace binding = torch_binding;
using at::Tensor;
using binding::OptionalTensor;

OptionalTensor present(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

c10::SymIntArrayRef symbolic(at::IntArrayRef shape) { return c10::fromIntArrayRefSlow(shape); }

bool is_layer_norm(const Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
                   double eps) {
  return x.defined() && binding::is_norm(x, shape, weight, bias, eps) && binding::has_parameter_types(x, weight, bias);
}

bool can_add(const Tensor& x, const Tensor& residual, double scale) {
  return residual.defined() && binding::can_add(x, residual, scale);
}

Tensor sum_of(const Tensor& x, const Tensor& residual, double scale) {
  return (x + residual * scale).to(x.scalar_type());
}

}  // namespace

Tensor layer_norm(const Tensor& x, at::IntArrayRef normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const OptionalTensor w = present(weight), b = present(bias);
  if (!is_layer_norm(x, normalized_shape, w, b, eps)) return at::layer_norm(x, normalized_shape, w, b, eps);
  return binding::norm_operator(Kind::layer).call(x, symbolic(normalized_shape), w, b, eps);
}

Tensor rms_norm(const Tensor& x, at::IntArrayRef normalized_shape, const Tensor& weight, std::optional<double> eps) {
  const OptionalTensor w = present(weight);
  if (x.defined()) {
    const double added = binding::eps_or_default(eps, x);
    if (binding::is_norm(x, normalized_shape, w, std::nullopt, added)) {
      return binding::norm_operator(Kind::rms).call(x, symbolic(normalized_shape), w, std::nullopt, added);
    }
  }
  return at::rms_norm(x, normalized_shape, w, eps);
}

std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& residual, at::IntArrayRef normalized_shape,
                                          const Tensor& weight, const Tensor& bias, double eps, double residual_scale) {
  const OptionalTensor w = present(weight), b = present(bias);
  if (is_layer_norm(x, normalized_shape, w, b, eps) && can_add(x, residual, residual_scale)) {
    return binding::add_norm_operator(Kind::layer)
        .call(x, residual, symbolic(normalized_shape), w, b, eps, residual_scale);
  }
  Tensor sum = sum_of(x, residual, residual_scale);
  return {layer_norm(sum, normalized_shape, weight, bias, eps), sum};
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual, at::IntArrayRef normalized_shape,
                                        const Tensor& weight, std::optional<double> eps, double residual_scale) {
  const OptionalTensor w = present(weight);
  if (x.defined()) {
    const double added = binding::eps_or_default(eps, x);
    if (binding::is_norm(x, normalized_shape, w, std::nullopt, added) && can_add(x, residual, residual_scale)) {
      return binding::add_norm_operator(Kind::rms).call(x, residual, symbolic(normalized_shape), w, std::nullopt, added,
                                                        residual_scale);
    }
  }
  Tensor sum = sum_of(x, residual, residual_scale);
  return {rms_norm(sum, normalized_shape, weight, eps), sum};
}

}  // namespace evenorm::torch

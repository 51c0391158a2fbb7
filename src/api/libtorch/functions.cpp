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

// A norm's arguments, without x. Only RMS norm may have no eps.
struct Norm {
  Kind kind;
  at::IntArrayRef shape;
  OptionalTensor weight, bias;
  std::optional<double> eps;

  double eps_for(const Tensor& x) const { return binding::eps_or_default(eps, x); }

  // True if evenorm computes the norm of x.
  bool takes(const Tensor& x) const {
    return x.defined() && binding::is_norm(x, shape, weight, bias, eps_for(x)) &&
           (kind == Kind::rms || binding::has_parameter_types(x, weight, bias));
  }

  Tensor of(const Tensor& x) const {
    if (takes(x)) return binding::norm_operator(kind).call(x, symbolic(shape), weight, bias, eps_for(x));
    return kind == Kind::layer ? at::layer_norm(x, shape, weight, bias, *eps) : at::rms_norm(x, shape, weight, eps);
  }

  std::tuple<Tensor, Tensor> of_sum(const Tensor& x, const Tensor& residual, double scale) const {
    if (takes(x) && residual.defined() && binding::can_add(x, residual, scale)) {
      return binding::add_norm_operator(kind).call(x, residual, symbolic(shape), weight, bias, eps_for(x), scale);
    }
    Tensor sum = (x + residual * scale).to(x.scalar_type());
    return {of(sum), sum};
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, at::IntArrayRef normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  return Norm{Kind::layer, normalized_shape, present(weight), present(bias), eps}.of(x);
}

Tensor rms_norm(const Tensor& x, at::IntArrayRef normalized_shape, const Tensor& weight, std::optional<double> eps) {
  return Norm{Kind::rms, normalized_shape, present(weight), {}, eps}.of(x);
}

std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& residual, at::IntArrayRef normalized_shape,
                                          const Tensor& weight, const Tensor& bias, double eps, double residual_scale) {
  return Norm{Kind::layer, normalized_shape, present(weight), present(bias), eps}.of_sum(x, residual, residual_scale);
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual, at::IntArrayRef normalized_shape,
                                        const Tensor& weight, std::optional<double> eps, double residual_scale) {
  return Norm{Kind::rms, normalized_shape, present(weight), {}, eps}.of_sum(x, residual, residual_scale);
}

}  // namespace evenorm::torch

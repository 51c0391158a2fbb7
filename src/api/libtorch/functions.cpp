// The functions of evenorm/torch.hpp: each call goes to evenorm's operator or to PyTorch's own function.
#include "arguments.hpp"
#include "evenorm/torch.hpp"
#include "operators.hpp"

namespace evenorm::torch {
namespace {

namespace binding = torch_binding;
using at::Tensor;
using binding::OptionalTensor;
using Both = std::tuple<Tensor, Tensor>;  // a norm, and the sum that it is of

OptionalTensor present(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

c10::SymIntArrayRef symbolic(at::IntArrayRef shape) { return c10::fromIntArrayRefSlow(shape); }

// A norm's arguments, without x. Only RMS norm may have no eps.
struct Norm {
  Kind kind;
  at::IntArrayRef shape;
  OptionalTensor weight, bias;
  std::optional<double> eps;
  bool zero_centered;

  double eps_for(const Tensor& x) const { return binding::eps_or_default(eps, x); }

  // True if evenorm computes the norm of x.
  bool takes(const Tensor& x) const {
    return x.defined() && binding::is_norm(x, shape, weight, bias, eps_for(x)) &&
           (kind == Kind::rms || binding::has_parameter_types(x, weight, bias));
  }

  Tensor of(const Tensor& x) const {
    if (takes(x)) return binding::norm_operator(kind).call(x, symbolic(shape), weight, bias, eps_for(x));
    if (zero_centered && at::isReducedFloatingType(x.scalar_type())) return of(x.to(at::kFloat)).to(x.scalar_type());
    return kind == Kind::layer ? at::layer_norm(x, shape, weight, bias, *eps) : at::rms_norm(x, shape, weight, eps);
  }

  Both of_sum(const Tensor& x, const Tensor& residual, double scale) const {
    if (takes(x) && residual.defined() && binding::can_add(x, residual, scale)) {
      return binding::add_norm_operator(kind).call(x, residual, symbolic(shape), weight, bias, eps_for(x), scale);
    }
    Tensor sum = (x + residual * scale).to(x.scalar_type());
    return {of(sum), sum};
  }
};

// The norm, with gamma = 1 + weight if zero_centered. gamma and bias get the type that evenorm computes in then, unless
// PyTorch's function refuses their types. Few devices take them beside a 16-bit x, so PyTorch's gets x in f32.
Norm norm(Kind kind, const Tensor& x, at::IntArrayRef shape, const Tensor& weight, const Tensor& bias,
          std::optional<double> eps, bool zero_centered) {
  if (!zero_centered) return {kind, shape, present(weight), present(bias), eps, false};
  TORCH_CHECK_VALUE(weight.defined(), "weight is absent, but zero_centered needs one");
  const at::ScalarType of_x = x.scalar_type(), type = weight.scalar_type();
  const bool fits = kind == Kind::rms || type == of_x || (type == at::kFloat && at::isReducedFloatingType(of_x));
  const bool refused = !fits || (bias.defined() && bias.scalar_type() != type);
  const at::ScalarType wide = refused ? type : c10::promoteTypes(c10::promoteTypes(of_x, type), at::kFloat);
  return {kind, shape, weight.to(wide) + 1, present(bias.defined() && !refused ? bias.to(wide) : bias), eps, true};
}

}  // namespace

Tensor layer_norm(const Tensor& x, at::IntArrayRef shape, const Tensor& weight, const Tensor& bias, double eps,
                  bool zero_centered) {
  return norm(Kind::layer, x, shape, weight, bias, eps, zero_centered).of(x);
}

Tensor rms_norm(const Tensor& x, at::IntArrayRef shape, const Tensor& weight, std::optional<double> eps,
                bool zero_centered) {
  return norm(Kind::rms, x, shape, weight, {}, eps, zero_centered).of(x);
}

Both add_layer_norm(const Tensor& x, const Tensor& residual, at::IntArrayRef shape, const Tensor& weight,
                    const Tensor& bias, double eps, double scale, bool zero_centered) {
  return norm(Kind::layer, x, shape, weight, bias, eps, zero_centered).of_sum(x, residual, scale);
}

Both add_rms_norm(const Tensor& x, const Tensor& residual, at::IntArrayRef shape, const Tensor& weight,
                  std::optional<double> eps, double scale, bool zero_centered) {
  return norm(Kind::rms, x, shape, weight, {}, eps, zero_centered).of_sum(x, residual, scale);
}

}  // namespace evenorm::torch

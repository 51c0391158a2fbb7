// See arguments.hpp. The conditions themselves are in conditions.hpp.
#include "arguments.hpp"

#include "conditions.hpp"

namespace evenorm::torch_binding {
namespace {

// The tensor without its memory, which it may not have: tensors that only record operations lack it.
ConstTensor described(const Tensor& t) {
  static constexpr char kThere = 0;
  return {&kThere, *dtype_of(t.scalar_type()), t.sizes(), {}};
}
ConstTensor described(const OptionalTensor& t) { return t.has_value() ? described(*t) : ConstTensor{}; }

bool is_supported_or_absent(const OptionalTensor& t) { return !t.has_value() || is_supported(*t); }

}  // namespace

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::f64;
    case at::kFloat:
      return DType::f32;
    case at::kBFloat16:
      return DType::bf16;
    case at::kHalf:
      return DType::f16;
    default:
      return std::nullopt;
  }
}

bool is_supported(const Tensor& t) {
  return t.device().is_cpu() && t.layout() == at::kStrided && !t.is_nested() &&
         !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && dtype_of(t.scalar_type()).has_value();
}

bool has_parameter_types(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias) {
  return has_parameter_types(*dtype_of(x.scalar_type()), described(weight), described(bias));
}

bool is_norm(const Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
             double eps) {
  return is_supported(x) && is_supported_or_absent(weight) && is_supported_or_absent(bias) &&
         is_norm(described(x), shape, described(weight), described(bias), eps);
}

bool is_group_norm(const Tensor& x, std::int64_t groups, const OptionalTensor& weight, const OptionalTensor& bias,
                   double eps) {
  const at::IntArrayRef shape = is_supported(x) ? x.sizes() : at::IntArrayRef();
  const auto fits = [&](const OptionalTensor& t) {
    return !t.has_value() || (is_supported(*t) && t->sizes() == shape.slice(1, 1));
  };
  return shape.size() >= 2 && groups >= 1 && shape[1] % groups == 0 && x.numel() != groups && fits(weight) &&
         fits(bias) && is_norm(x, shape.slice(1), {}, {}, eps) && has_parameter_types(x, weight, bias);
}

double eps_or_default(const std::optional<double>& eps, const Tensor& x) {
  return eps.value_or(default_eps(dtype_of(x.scalar_type()).value_or(DType::f32)));
}

bool can_add(const Tensor& x, const Tensor& residual, double scale) {
  return is_supported(residual) && can_add(described(x), described(residual), scale);
}

}  // namespace evenorm::torch_binding

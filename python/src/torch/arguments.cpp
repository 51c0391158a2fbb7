// See arguments.hpp.
#include "arguments.hpp"

#include <cmath>
#include <limits>

namespace evenorm::torch_binding {

bool is_supported(const Tensor& t) {
  const at::ScalarType type = t.scalar_type();
  return t.device().is_cpu() && t.layout() == at::kStrided && !t.is_nested() &&
         !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides() &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble);
}

namespace {

bool is_of_shape(const OptionalTensor& t, at::IntArrayRef shape) {
  return !t.has_value() || (is_supported(*t) && t->sizes() == shape);
}

}  // namespace

bool has_parameter_types(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias) {
  const auto fits = [&](const OptionalTensor& t) {
    return !t.has_value() || t->scalar_type() == x.scalar_type() ||
           (t->scalar_type() == at::kFloat && x.element_size() == 2);
  };
  return fits(weight) && fits(bias) &&
         (!weight.has_value() || !bias.has_value() || weight->scalar_type() == bias->scalar_type());
}

bool is_norm(const Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
             double eps) {
  if (shape.empty() || shape.size() > static_cast<std::size_t>(x.dim()) || !is_supported(x)) return false;
  const bool trailing = x.sizes().slice(static_cast<std::size_t>(x.dim()) - shape.size()) == shape;
  return trailing && c10::multiply_integers(shape) != 0 && is_of_shape(weight, shape) && is_of_shape(bias, shape) &&
         eps >= 0 && std::isfinite(eps);
}

double eps_or_default(const std::optional<double>& eps, const Tensor& x) {
  return eps.value_or(x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                     : std::numeric_limits<float>::epsilon());
}

bool can_add(const Tensor& x, const Tensor& residual, double scale) {
  return is_supported(residual) && residual.sizes() == x.sizes() && std::isfinite(static_cast<float>(scale));
}

}  // namespace evenorm::torch_binding

// Where a call of an operator goes: by way of the dispatcher, or to the CPU's kernel at once, which knows statistics.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/forward_grad.h>

#include "operators.hpp"

namespace evenorm::torch_binding {

template <class... Tensors>
bool has_tangent(const Tensors&... tensors) {
  return (torch::autograd::isFwGradDefined(tensors) || ...);
}

inline c10::DispatchKeySet below_autograd(c10::DispatchKeySet keys) { return keys & c10::after_autograd_keyset; }

// Is what the dispatcher calls below autograd the CPU's kernel? keys: those of the operator's call.
inline bool goes_to_cpu(c10::DispatchKeySet keys) {
  return below_autograd(keys).highestPriorityTypeId() == c10::DispatchKey::CPU;
}
// The same of a call with these tensors, of which nothing is to be differentiated.
template <class... Tensors>
bool goes_to_cpu_alone(const Tensors&... tensors) {
  if (torch::autograd::compute_requires_grad(tensors...) || has_tangent(tensors...)) return false;
  const auto local = c10::impl::tls_local_dispatch_key_set();
  c10::DispatchKeySet keys = local.included_;
  const auto include = [&](const OptionalTensor& t) {
    if (t.has_value() && t->defined()) keys = keys | t->key_set();
  };
  (include(tensors), ...);
  // For these the operators have nothing.
  constexpr c10::DispatchKeySet kPassing({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView});
  return goes_to_cpu(keys - local.excluded_ - kPassing);
}

// Elements of x from which on a new tensor for statistics costs less than finding them anew.
inline constexpr std::int64_t kLeastKept = 4096;

// Statistics of f64 arithmetic are of no use to the other pass, or to another arithmetic.
inline bool keeps_statistics(c10::DispatchKeySet keys, const Tensor& x, const OptionalTensor& weight,
                             const OptionalTensor& bias) {
  const auto is_f64 = [](const OptionalTensor& t) {
    return t.has_value() && t->defined() && t->scalar_type() == at::kDouble;
  };
  return goes_to_cpu(keys) && x.numel() >= kLeastKept && !is_f64(x) && !is_f64(weight) && !is_f64(bias);
}

}  // namespace evenorm::torch_binding

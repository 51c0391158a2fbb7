// Where a call of an operator goes: by way of the dispatcher, or to the CPU's kernel at once, which keeps statistics.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/forward_grad.h>

#include "operators.hpp"

namespace evenorm::torch_binding {

// PyTorch's isFwGradDefined, and what it asks of a tensor, without making an optional of each.
inline bool is_tangent_defined(const Tensor& t) { return t.defined() && t._fw_grad(/*level=*/0).defined(); }
inline bool is_tangent_defined(const OptionalTensor& t) { return t.has_value() && is_tangent_defined(*t); }
template <class... Tensors>
bool has_tangent(const Tensors&... tensors) {
  return (is_tangent_defined(tensors) || ...);
}

inline c10::DispatchKeySet keys_of(const Tensor& t) { return t.key_set(); }
inline c10::DispatchKeySet keys_of(const OptionalTensor& t) {
  return t.has_value() ? keys_of(*t) : c10::DispatchKeySet();
}

inline c10::DispatchKeySet below_autograd(c10::DispatchKeySet keys) { return keys & c10::after_autograd_keyset; }

// Does autograd, in the operator's call with these keys, pass it on to the CPU's kernel?
inline bool goes_to_cpu(c10::DispatchKeySet keys) {
  return below_autograd(keys).highestPriorityTypeId() == c10::DispatchKey::CPU;
}
// Would a call with these tensors, from without the dispatcher, come to nothing else, and have nothing to
// differentiate?
template <class... Tensors>
bool goes_to_cpu_alone(const Tensors&... tensors) {
  if (torch::autograd::compute_requires_grad(tensors...) || has_tangent(tensors...)) return false;
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet keys = (local.included_ | ... | keys_of(tensors));
  // For the last two the operators have nothing.
  constexpr c10::DispatchKeySet kPassing =
      c10::autograd_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView});
  return (keys - local.excluded_ - kPassing).highestPriorityTypeId() == c10::DispatchKey::CPU;
}

// Elements of x from which on a new tensor for statistics costs less than finding them anew; bytes of a row from which
// on that tensor is small beside x.
inline constexpr std::int64_t kLeastKept = 4096, kLeastRowKept = 128;

// Statistics of f64 arithmetic are of no use to the other pass, or to another arithmetic.
inline bool keeps_statistics(const Tensor& x, SymIntArrayRef shape, const OptionalTensor& weight,
                             const OptionalTensor& bias) {
  const auto is_f64 = [](const OptionalTensor& t) {
    return t.has_value() && t->defined() && t->scalar_type() == at::kDouble;
  };
  const std::int64_t row = c10::multiply_integers(C10_AS_INTARRAYREF_SLOW(shape)) * x.element_size();
  return x.numel() >= kLeastKept && row >= kLeastRowKept && !is_f64(x) && !is_f64(weight) && !is_f64(bias);
}

}  // namespace evenorm::torch_binding

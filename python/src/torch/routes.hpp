// Decides whether a call goes through the dispatcher or straight to the CPU's kernel, and whether statistics are kept.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/forward_grad.h>

#include "operators.hpp"

namespace evenorm::torch_binding {

// PyTorch's isFwGradDefined, but without making an optional of each tensor.
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

// True if autograd, in an operator's call with these keys, would pass the call on to the CPU's kernel.
inline bool goes_to_cpu(c10::DispatchKeySet keys) {
  return below_autograd(keys).highestPriorityTypeId() == c10::DispatchKey::CPU;
}
// True if a call with these tensors from outside the dispatcher would only reach the CPU's kernel, with nothing to
// differentiate.
template <class... Tensors>
bool goes_to_cpu_alone(const Tensors&... tensors) {
  if (torch::autograd::compute_requires_grad(tensors...) || has_tangent(tensors...)) return false;
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet keys = (local.included_ | ... | keys_of(tensors));
  // The operators register nothing for the last two keys.
  constexpr c10::DispatchKeySet kPassing =
      c10::autograd_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView});
  return (keys - local.excluded_ - kPassing).highestPriorityTypeId() == c10::DispatchKey::CPU;
}

// The least number of elements of x for which storing statistics is cheaper than recomputing them, and the least row
// size in bytes for which the stored tensor is small compared with x.
inline constexpr std::int64_t kLeastKept = 4096, kLeastRowKept = 128;

// Statistics of f64 arithmetic are useless to the backward pass and to other arithmetic, so they are not kept.
inline bool keeps_statistics(const Tensor& x, SymIntArrayRef shape, const OptionalTensor& weight,
                             const OptionalTensor& bias) {
  const auto is_f64 = [](const OptionalTensor& t) { return is_given(t) && t->scalar_type() == at::kDouble; };
  const std::int64_t row = c10::multiply_integers(C10_AS_INTARRAYREF_SLOW(shape)) * x.element_size();
  return x.numel() >= kLeastKept && row >= kLeastRowKept && !is_f64(x) && !is_f64(weight) && !is_f64(bias);
}

}  // namespace evenorm::torch_binding

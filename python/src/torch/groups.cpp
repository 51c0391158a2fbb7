// evenorm::group_norm: layer norm of the channels of each group, with a weight and a bias for each channel. It is
// composed of differentiable operators, so derivatives, vmap and compilers see these.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/unflatten.h>
#include <torch/library.h>

#include <algorithm>

#include "operators.hpp"

namespace evenorm::torch_binding {
namespace {

// True inside of functional transforms, which hide the strides.
bool is_wrapped(const Tensor& t) {
  constexpr c10::DispatchKeySet kWrapped({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return t.key_set().has_any(kWrapped);
}

// True if only the strides of axes of size 1 differ. They tell PyTorch the memory format.
bool differs_in_axes_of_one(const Tensor& y, const Tensor& x) {
  if (is_wrapped(y) || y.sym_strides() == x.sym_strides()) return false;
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    if (y.sym_stride(i) != x.sym_stride(i) && !TORCH_GUARD_OR_FALSE(x.sym_size(i).sym_eq(1))) return false;
  }
  return true;
}

Tensor group_norm(const Tensor& given, SymInt groups, const OptionalTensor& weight, const OptionalTensor& bias,
                  double eps) {
  // Results are contiguous or channels-last, as PyTorch's.
  const Tensor x = is_wrapped(given) ? given : given.contiguous(given.suggest_memory_format());
  TORCH_CHECK_VALUE(x.dim() >= 2 && groups >= 1 && x.sym_size(1) % groups == 0, "x has shape ", x.sym_sizes(),
                    ", but its second axis should have a multiple of num_groups (", groups, ") channels");
  const Tensor split = at::unflatten_symint(x, 1, {groups, x.sym_size(1) / groups});
  c10::SymDimVector of_channels(static_cast<std::size_t>(split.dim()), 1);
  std::copy_n(split.sym_sizes().begin() + 1, 2, of_channels.begin() + 1);
  const auto by_channel = [&](const OptionalTensor& p) {
    return is_given(p) ? OptionalTensor(p->reshape_symint(of_channels)) : std::nullopt;
  };
  OptionalTensor scale = by_channel(weight);
  const OptionalTensor shift = by_channel(bias);
  // A weight with x's axes makes channels be summed apart, in any layout, and results keep x's memory order.
  if (!scale) scale = (shift ? *shift : x).new_ones({}).expand_symint(of_channels);
  const Tensor y = norm_operator(Kind::layer).call(split, split.sym_sizes().slice(2), scale, shift, eps);
  // Without this key, results are no views of y, which could not be changed in place where PyTorch's can.
  const c10::impl::ExcludeDispatchKeyGuard no_view(c10::DispatchKey::ADInplaceOrView);
  const Tensor joined = y.flatten(1, 2);
  return differs_in_axes_of_one(joined, x) ? joined.as_strided_symint(x.sym_sizes(), x.sym_strides()) : joined;
}

}  // namespace

TORCH_LIBRARY_IMPL(evenorm, CompositeImplicitAutograd, m) {
  if (registers_operators()) m.impl("group_norm", group_norm);
}
TORCH_LIBRARY_IMPL(evenorm, FuncTorchBatchedDecomposition, m) {
  if (registers_operators()) m.impl("group_norm", group_norm);
}

}  // namespace evenorm::torch_binding

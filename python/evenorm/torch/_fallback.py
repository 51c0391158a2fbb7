"""The operators registered in Python, for a PyTorch version that this build has no C++ operators for.

They have the same bits, and calls take some microseconds more. The schemas are those of python/src/torch/operators.cpp.
PyTorch differentiates the formula in float64 for derivatives of gradients. `layer_norm`, `rms_norm`, `add_layer_norm` and
`add_rms_norm` are the eager entry points: they bypass PyTorch's dispatcher, and return NotImplemented for what it should
see.
"""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._prims_common import suggest_memory_format
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from evenorm import _core

from ._results import contiguous_like, gradients, norm_like

_library = torch.library.Library("evenorm", "DEF")

_KINDS = {"layer_norm": False, "rms_norm": True}  # the norms' names, and the `rms` of evenorm._core
_PARAMETERS = "Tensor? weight=None, Tensor? bias=None, *, float eps=1e-5"
_operators = torch.ops.evenorm


# --- on the CPU


def _register_kernels(name: str, rms: bool) -> None:
    def norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        y = norm_like(rms, x, normalized_shape, weight)
        _core.write_norm(rms, x, None, normalized_shape, weight, bias, eps, 1.0, y, None)
        return y

    def add_norm(x, residual, normalized_shape, weight=None, bias=None, eps=1e-5, residual_scale=1.0):
        x, residual = x.contiguous(), residual.contiguous()  # the fused forms need dense rows
        y, sum = contiguous_like(x), contiguous_like(x)
        _core.write_norm(rms, x, residual, normalized_shape, weight, bias, eps, residual_scale, y, sum)
        return y, sum

    def backward(dy, x, normalized_shape, weight, bias_dtype, eps, output_mask, dsum=None):
        results = gradients(x, normalized_shape, weight, bias_dtype, output_mask)
        wanted = (result if is_wanted else None for result, is_wanted in zip(results, output_mask, strict=True))
        _core.write_backward(rms, dy, x, normalized_shape, weight, eps, dsum, *wanted)
        return results

    _library.define(f"{name}(Tensor x, SymInt[] normalized_shape, {_PARAMETERS}) -> Tensor")
    _library.define(
        f"add_{name}(Tensor x, Tensor residual, SymInt[] normalized_shape, {_PARAMETERS}, float residual_scale=1.0)"
        " -> (Tensor y, Tensor sum)"
    )
    _library.define(
        f"{name}_backward(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? weight, ScalarType? bias_dtype,"
        " float eps, bool[3] output_mask, Tensor? dsum=None) -> (Tensor dx, Tensor dweight, Tensor dbias)"
    )
    _library.impl(name, norm, "CPU")
    _library.impl(f"add_{name}", add_norm, "CPU")
    _library.impl(f"{name}_backward", backward, "CPU")


for _name, _rms in _KINDS.items():
    _register_kernels(_name, _rms)


def _group_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    """See python/src/torch/groups.cpp."""
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    x = x if is_wrapped else x.contiguous(memory_format=suggest_memory_format(x))
    split = x.unflatten(1, (num_groups, x.shape[1] // num_groups))
    of_channels = (1, *split.shape[1:3], *[1] * (x.dim() - 2))
    weight, bias = (None if p is None else p.reshape(of_channels) for p in (weight, bias))
    if weight is None:
        weight = (x if bias is None else bias).new_ones(()).expand(of_channels)
    norm = _operators.layer_norm if has_derivatives() else functools.partial(composed_norm, False)
    y = norm(split, split.shape[2:], weight, bias, eps=eps)
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)):
        y = y.flatten(1, 2)
        strides = zip(y.stride(), x.stride(), x.shape, strict=True)
        if is_wrapped or any(a != b and n != 1 for a, b, n in strides):
            return y
        return y.as_strided(x.shape, x.stride())


_library.define(
    "group_norm(Tensor x, SymInt num_groups, Tensor? weight=None, Tensor? bias=None, *, float eps=1e-5) -> Tensor"
)
for _key in ("CompositeImplicitAutograd", "FuncTorchBatchedDecomposition"):
    _library.impl("group_norm", _group_norm, _key)


# --- derivatives


def has_derivatives() -> bool:
    """False in forward mode and inside the derivatives of torch.func, which these operators lack."""
    levels = functorch.get_interpreter_stack() or []
    without = (functorch.TransformType.Vmap, functorch.TransformType.Functionalize)
    return forward_ad._current_level < 0 and all(level.key() in without for level in levels)


_LACKS = (
    "evenorm::{} has no forward mode and no torch.func without C++ operators: evenorm.torch.info() reports why they are not "
    "in use. The functions of evenorm.torch have both."
)


def _register_autograd(name: str, differentiate: Callable[..., Any]) -> None:
    """Registers an operator's derivative. `differentiate(results, arguments)` returns the results as parts of the graph.

    torch.library.register_autograd would give no tangents in forward mode. This raises an error.
    """
    operator = getattr(_operators, name).default
    defaults = {argument.name: argument.default_value for argument in operator._schema.arguments}

    def kernel(keys: Any, *given: Any, **options: Any) -> Any:
        tensors = [t for t in given if isinstance(t, Tensor)]
        if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in tensors):
            raise NotImplementedError(_LACKS.format(name))
        with torch._C._AutoDispatchBelowAutograd():
            results = operator.redispatch(keys & torch._C._after_autograd_keyset, *given, **options)
        if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
            return results
        if not has_derivatives():
            raise NotImplementedError(_LACKS.format(name))
        return differentiate(results, {**defaults, **dict(zip(defaults, given, strict=False)), **options})

    _library.impl(name, kernel, "Autograd", with_keyset=True)


class EvenormNorm(torch.autograd.Function):
    """The derivative of the four forward operators."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, norm, results):  # type: ignore[override]
        """`norm` is (rms, normalized_shape, eps, residual_scale). `results` are y and, with a residual, the sum."""
        ctx.set_materialize_grads(False)
        ctx.norm = norm
        ctx.bias_dtype = None if bias is None else bias.dtype
        wants_dx = any(ctx.needs_input_grad[:2])
        # dx needs the weight. Its type and shape, which are dweight's, are needed if they are not x's and norm's.
        differs = weight is not None and (weight.dtype != x.dtype or list(weight.shape) != list(norm[1]))
        # dbias needs no x. For dweight alone, RMS norm saves a copy: see NormBackward in python/src/torch/autograd.cpp.
        x = x if residual is None else results[1]
        if not wants_dx:
            x = None if not ctx.needs_input_grad[2] else x.clone() if norm[0] else x
        ctx.save_for_backward(x, weight if wants_dx or differs else None)
        if residual is None:
            return results[0]
        ctx.residual_dtype = residual.dtype
        if not wants_dx:
            ctx.mark_non_differentiable(results[1])  # it depends on x and residual only
        return results

    @staticmethod
    def backward(ctx, dy, dsum=None):  # type: ignore[override]
        needs_x, needs_residual, needs_weight, needs_bias, _, _ = ctx.needs_input_grad
        scale = ctx.norm[3]
        dx = dweight = dbias = dresidual = None
        if dy is None:
            dx = dsum
        else:
            dx, dweight, dbias = _gradients(ctx, dy, dsum, [needs_x or needs_residual, needs_weight, needs_bias])
        if needs_residual and dx is not None:
            dresidual = (dx if scale == 1 else dx * scale).to(ctx.residual_dtype)
        return dx if needs_x else None, dresidual, dweight, dbias, None, None


def _gradients(ctx: Any, dy: Tensor, dsum: Tensor | None, mask: list[bool]) -> Any:
    """Gradients of x, weight and bias; None where `mask` is False."""
    rms, shape, eps, _ = ctx.norm
    x, weight = ctx.saved_tensors
    x = dy if x is None else x
    if torch.is_grad_enabled() or is_compiling() or not _core.are_plain(dy, dsum):
        operator = _operators.rms_norm_backward if rms else _operators.layer_norm_backward
        results = operator(dy, x, shape, weight, ctx.bias_dtype, eps, mask, dsum)
        return [result if wanted else None for result, wanted in zip(results, mask, strict=True)]
    dx, dweight, dbias = (wanted or None for wanted in mask)
    if dweight and weight is None:
        dweight = torch.empty(shape, dtype=x.dtype)
    if dbias and (weight is None or weight.dtype != ctx.bias_dtype):
        dbias = torch.empty(shape if weight is None else weight.shape, dtype=ctx.bias_dtype)
    return _core.write_backward(rms, dy, x, shape, weight, eps, dsum, dx, dweight, dbias)


# Without the checks for functional transforms: eager calls have none, and the operators refuse them.
_apply_norm = super(torch.autograd.Function, EvenormNorm).apply


def _differentiate(rms: bool, results: Any, given: dict[str, Any]) -> Any:
    norm = (rms, given["normalized_shape"], given["eps"], given.get("residual_scale", 1.0))
    residual = given.get("residual")
    results = (results,) if residual is None else results
    return _apply_norm(given["x"], residual, given["weight"], given["bias"], norm, results)


def _normalised(rms: bool, x: Tensor, axes: list[int], eps: float) -> Tensor:
    """The normalised rows in float64, for any magnitude of x. See Rows in python/src/torch/formulas.cpp."""
    if not rms:
        low, high = x.detach().amin(axes, keepdim=True), x.detach().amax(axes, keepdim=True)
        x = x - torch.where(low == high, low, low / 2 + high / 2)
    size = x.detach().abs().amax(axes, keepdim=True).clamp_min(math.sqrt(eps))
    is_zero = size == 0
    scale = size.masked_fill(is_zero, 1).clamp_min(torch.finfo(torch.float64).tiny).log2().floor().neg().exp2()
    x = x * scale
    centred = x - x.mean(axes, keepdim=True) if not rms else x
    z = centred.square().mean(axes, keepdim=True) + eps * scale * scale
    return centred * z.masked_fill(is_zero, 1).rsqrt().masked_fill(is_zero, 0)


def composed_norm(rms: bool, x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Tensor:
    """The norm as differentiable operators in float64, for derivatives that the operators lack."""
    y = _normalised(rms, x.double(), list(range(-len(shape), 0)), eps)
    if weight is not None:
        y = y * weight.double()
    if bias is not None:
        y = y + bias.double()
    return y.to(x.dtype)


def _second_gradients(
    rms: bool, inputs: tuple[Tensor, Tensor, Tensor | None], shape: Sequence[int], eps: float, of: Sequence[Any]
) -> list[Tensor | None]:
    """The gradients of <of, (dx, dweight, dbias)> with respect to dy, x and weight."""
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        # Aliases, because the inputs may depend on each other: dy, for example, on x.
        leaves = [
            t if t is None else t.view_as(t) if keep and t.requires_grad else t.detach().requires_grad_()
            for t in inputs
        ]
        dy, x, weight = (None if t is None else t.double() for t in leaves)
        assert dy is not None and x is not None
        scale = x.new_ones(shape).requires_grad_() if weight is None else weight
        shift = torch.zeros_like(scale).requires_grad_()
        y = composed_norm(rms, x, shape, scale, shift, eps)
        first = torch.autograd.grad(y, (x, scale, shift), dy, create_graph=True)
        pairs = [(f, o.double()) for f, o in zip(first, of, strict=True) if o is not None]
        into = [t for t in leaves if t is not None]
        outputs, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, into, given, create_graph=keep, allow_unused=True)
    results = iter(found)
    return [None if t is None else next(results) for t in leaves]


class EvenormNormBackward(torch.autograd.Function):
    """The derivative of the two backward operators."""

    @staticmethod
    def forward(ctx, dy, x, weight, dsum, norm, results):  # type: ignore[override]
        """`norm` is (rms, normalized_shape, eps, output_mask)."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(dy, x, weight)
        ctx.norm = norm
        ctx.dsum_dtype = None if dsum is None else dsum.dtype
        # Gradients that were not requested are empty and stay outside the graph.
        ctx.mark_non_differentiable(*(r for r, wanted in zip(results, norm[3], strict=True) if not wanted))
        return results

    @staticmethod
    def backward(ctx, *of):  # type: ignore[override]
        rms, shape, eps, _ = ctx.norm
        first: list[Tensor | None] = [None, None, None]
        if any(o is not None for o in of):
            first = _second_gradients(rms, ctx.saved_tensors, shape, eps, of)
        dsum = None if ctx.dsum_dtype is None or of[0] is None else of[0].to(ctx.dsum_dtype)
        return *first, dsum, None, None


def _differentiate_backward(rms: bool, results: Any, given: dict[str, Any]) -> Any:
    norm = (rms, given["normalized_shape"], given["eps"], given["output_mask"])
    apply = super(torch.autograd.Function, EvenormNormBackward).apply
    return apply(given["dy"], given["x"], given["weight"], given["dsum"], norm, results)


for _name, _rms in _KINDS.items():
    _register_autograd(_name, functools.partial(_differentiate, _rms))
    _register_autograd(f"add_{_name}", functools.partial(_differentiate, _rms))
    _register_autograd(f"{_name}_backward", functools.partial(_differentiate_backward, _rms))


# --- eager calls


_core.use_torch(
    torch.Tensor.__dlpack_c_exchange_api__,
    torch.Tensor,
    torch.nn.Parameter,
    torch.empty_like,
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.Tensor.is_neg,
    (
        torch._C._is_torch_function_mode_enabled,
        torch._C._len_torch_dispatch_stack,
        torch._C._functorch.peek_interpreter_stack,
        torch._C._is_tracing,
    ),
    forward_ad,
    _apply_norm,
    str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"),
)

layer_norm = _core.tensor_layer_norm
rms_norm = _core.tensor_rms_norm
add_layer_norm = _core.tensor_add_layer_norm
add_rms_norm = _core.tensor_add_rms_norm


def group_norm(*arguments: object) -> object:
    return NotImplemented


def _in_place(rms: bool) -> Callable[..., Tensor]:
    def norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        _core.write_norm(rms, x, None, shape, weight, bias, eps, 1.0, x, None)
        return x

    return norm


layer_norm_ = _in_place(rms=False)
rms_norm_ = _in_place(rms=True)

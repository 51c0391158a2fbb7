"""The operators registered in Python, for a PyTorch version that this build has no C++ operators for.

They have the same bits, and calls take some microseconds more. The schemas are those of python/src/torch/operators.cpp.
PyTorch differentiates the formula in float64 for derivatives of gradients. `layer_norm`, `rms_norm`, `add_layer_norm` and
`add_rms_norm` are the eager entry points: they bypass PyTorch's dispatcher, and return NotImplemented for what it should
see.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from evenorm import _core

from ._results import contiguous_like, gradients, rms_norm_like

_library = torch.library.Library("evenorm", "DEF")

_SCHEMAS = (
    "layer_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor",
    "rms_norm(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float eps=1e-5) -> Tensor",
    "add_layer_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None,"
    " float eps=1e-5, float residual_scale=1.0) -> (Tensor y, Tensor sum)",
    "add_rms_norm(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, float eps=1e-5,"
    " float residual_scale=1.0) -> (Tensor y, Tensor sum)",
    "layer_norm_backward(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? weight, ScalarType? bias_dtype,"
    " float eps, bool[3] output_mask, Tensor? dsum=None) -> (Tensor dx, Tensor dweight, Tensor dbias)",
    "rms_norm_backward(Tensor dy, Tensor x, SymInt[] normalized_shape, Tensor? weight, float eps,"
    " bool[2] output_mask, Tensor? dsum=None) -> (Tensor dx, Tensor dweight)",
)
for _schema in _SCHEMAS:
    _library.define(_schema)
_operators = torch.ops.evenorm


# --- on the CPU


def _norm(rms, x, residual, normalized_shape, weight, bias, eps, residual_scale, y, sum=None):
    _core.write_norm(rms, x, residual, normalized_shape, weight, bias, eps, residual_scale, y, sum)
    return y if sum is None else (y, sum)


def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _norm(False, x, None, normalized_shape, weight, bias, eps, 1.0, contiguous_like(x))


def _rms_norm(x, normalized_shape, weight=None, eps=1e-5):
    return _norm(True, x, None, normalized_shape, weight, None, eps, 1.0, rms_norm_like(x, normalized_shape, weight))


def _add_norm(rms, x, residual, normalized_shape, weight, bias, eps, residual_scale):
    x, residual = x.contiguous(), residual.contiguous()  # the fused forms need dense rows
    y, sum = contiguous_like(x), contiguous_like(x)
    return _norm(rms, x, residual, normalized_shape, weight, bias, eps, residual_scale, y, sum)


def _add_layer_norm(x, residual, normalized_shape, weight=None, bias=None, eps=1e-5, residual_scale=1.0):
    return _add_norm(False, x, residual, normalized_shape, weight, bias, eps, residual_scale)


def _add_rms_norm(x, residual, normalized_shape, weight=None, eps=1e-5, residual_scale=1.0):
    return _add_norm(True, x, residual, normalized_shape, weight, None, eps, residual_scale)


def _backward(rms, dy, x, normalized_shape, weight, bias_dtype, eps, output_mask, dsum):
    results = gradients(x, normalized_shape, weight, bias_dtype, output_mask)
    dx, dweight, *dbias = (r if wanted else None for r, wanted in zip(results, output_mask, strict=True))
    _core.write_backward(rms, dy, x, normalized_shape, weight, eps, dsum, dx, dweight, *(dbias or [None]))
    return results


def _layer_norm_backward(dy, x, normalized_shape, weight, bias_dtype, eps, output_mask, dsum=None):
    return _backward(False, dy, x, normalized_shape, weight, bias_dtype, eps, output_mask, dsum)


def _rms_norm_backward(dy, x, normalized_shape, weight, eps, output_mask, dsum=None):
    return _backward(True, dy, x, normalized_shape, weight, None, eps, output_mask, dsum)


for _name, _function in {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "add_layer_norm": _add_layer_norm,
    "add_rms_norm": _add_rms_norm,
    "layer_norm_backward": _layer_norm_backward,
    "rms_norm_backward": _rms_norm_backward,
}.items():
    _library.impl(_name, _function, "CPU")


# --- derivatives


def _differentiate(ctx: Any, dy: Tensor | None, dsum: Tensor | None, places: dict[str, int]) -> dict[str, Any]:
    """Returns the gradients of x, weight and bias by name, from the gradients of y and of the sum."""
    if dy is None:
        return {"x": dsum}
    x, weight = ctx.saved_tensors
    needs = {name: any(ctx.needs_input_grad[place : place + 1]) for name, place in places.items()}
    wants_x = needs["x"] or needs.get("residual", False)
    if "bias" in places:
        mask = [wants_x, needs["weight"], needs["bias"]]
        results = _operators.layer_norm_backward(dy, x, ctx.shape, weight, ctx.bias_dtype, ctx.eps, mask, dsum)
    else:
        mask = [wants_x, needs["weight"]]
        results = _operators.rms_norm_backward(dy, x, ctx.shape, weight, ctx.eps, mask, dsum)
    names = ("x", "weight", "bias")
    return {name: r if wanted else None for name, r, wanted in zip(names, results, mask, strict=False)}


def _register_forward(name: str, *places: str) -> None:
    """Registers the derivative of a forward operator. `places` are the names of its arguments, in order."""
    place = {argument: i for i, argument in enumerate(places)}
    defaults = {"weight": None, "bias": None, "eps": 1e-5, "residual_scale": 1.0}
    tensors = {a: i for a, i in place.items() if a in ("x", "residual", "weight", "bias")}

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        given = {**defaults, **dict(zip(places, inputs, strict=False))}  # PyTorch leaves trailing defaults out
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1] if "residual" in place else given["x"], given["weight"])
        ctx.shape, ctx.eps, ctx.scale = given["normalized_shape"], given["eps"], given["residual_scale"]
        ctx.bias_dtype = None if given["bias"] is None else given["bias"].dtype
        ctx.residual_dtype = given["residual"].dtype if "residual" in place else None
        if "residual" in place and not any(ctx.needs_input_grad[:2]):
            ctx.mark_non_differentiable(output[1])  # it depends on x and residual only

    def backward(ctx: Any, dy: Tensor | None, dsum: Tensor | None = None) -> tuple[Any, ...]:
        found = _differentiate(ctx, dy, dsum, tensors)
        if "residual" in place and found["x"] is not None:
            dx = found["x"]
            found["residual"] = (dx if ctx.scale == 1 else dx * ctx.scale).to(ctx.residual_dtype)
        return tuple(found.get(argument) for argument in places[: len(ctx.needs_input_grad)])

    torch.library.register_autograd(f"evenorm::{name}", backward, setup_context=setup_context, lib=_library)


_register_forward("layer_norm", "x", "normalized_shape", "weight", "bias", "eps")
_register_forward("rms_norm", "x", "normalized_shape", "weight", "eps")
_register_forward("add_layer_norm", "x", "residual", "normalized_shape", "weight", "bias", "eps", "residual_scale")
_register_forward("add_rms_norm", "x", "residual", "normalized_shape", "weight", "eps", "residual_scale")


def _normalised(kind: str, x: Tensor, axes: list[int], eps: float) -> Tensor:
    """The normalised rows in float64, for any magnitude of x. See Rows in python/src/torch/formulas.cpp."""
    if kind == "layer":
        low, high = x.detach().amin(axes, keepdim=True), x.detach().amax(axes, keepdim=True)
        x = x - torch.where(low == high, low, low / 2 + high / 2)
    size = x.detach().abs().amax(axes, keepdim=True).clamp_min(math.sqrt(eps))
    is_zero = size == 0
    scale = size.masked_fill(is_zero, 1).clamp_min(torch.finfo(torch.float64).tiny).log2().floor().neg().exp2()
    x = x * scale
    centred = x - x.mean(axes, keepdim=True) if kind == "layer" else x
    z = centred.square().mean(axes, keepdim=True) + eps * scale * scale
    return centred * z.masked_fill(is_zero, 1).rsqrt().masked_fill(is_zero, 0)


def _second_gradients(
    kind: str, inputs: tuple[Tensor, Tensor, Tensor | None], shape: Sequence[int], eps: float, of: Sequence[Any]
) -> list[Tensor | None]:
    """The gradients of <of, (dx, dweight, dbias)> with respect to dy, x and weight."""
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [t if t is None or (keep and t.requires_grad) else t.detach().requires_grad_() for t in inputs]
        dy, x, weight = (None if t is None else t.double() for t in leaves)
        assert dy is not None and x is not None
        scale = x.new_ones(shape).requires_grad_() if weight is None else weight
        shift = x.new_zeros(shape).requires_grad_()
        axes = list(range(-len(shape), 0))
        y = _normalised(kind, x, axes, eps) * scale + shift
        wanted = (x, scale, shift) if kind == "layer" else (x, scale)
        first = torch.autograd.grad(y, wanted, dy, create_graph=True)
        pairs = [(f, o.double()) for f, o in zip(first, of, strict=True) if o is not None]
        into = [t for t in leaves if t is not None]
        outputs, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, into, given, create_graph=keep, allow_unused=True)
    results = iter(found)
    return [None if t is None else next(results) for t in leaves]


def _register_backward(name: str, kind: str, eps_place: int) -> None:
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], inputs[1], inputs[3])
        ctx.shape, ctx.eps, ctx.mask = inputs[2], inputs[eps_place], inputs[eps_place + 1]
        ctx.count, ctx.dsum_dtype = len(inputs), inputs[-1].dtype if isinstance(inputs[-1], Tensor) else None

    def backward(ctx: Any, *of: Tensor | None) -> tuple[Any, ...]:
        asked = [o if wanted else None for o, wanted in zip(of, ctx.mask, strict=True)]
        result: list[Any] = [None] * ctx.count
        if any(o is not None for o in asked):
            result[0], result[1], result[3] = _second_gradients(kind, ctx.saved_tensors, ctx.shape, ctx.eps, asked)
        if ctx.dsum_dtype is not None and asked[0] is not None:
            result[-1] = asked[0].to(ctx.dsum_dtype)
        return tuple(result)

    torch.library.register_autograd(f"evenorm::{name}", backward, setup_context=setup_context, lib=_library)


_register_backward("layer_norm_backward", "layer", 5)
_register_backward("rms_norm_backward", "rms", 4)


# --- eager calls


class _Norm(torch.autograd.Function):
    """The derivative of an eager call, without the dispatcher."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, norm, results):  # type: ignore[override]
        """`norm` is (rms, normalized_shape, eps, residual_scale). `results` are y and, with a residual, the sum."""
        ctx.set_materialize_grads(False)
        ctx.norm = norm
        ctx.bias_dtype = None if bias is None else bias.dtype
        if residual is None:
            ctx.save_for_backward(x, weight)
            return results[0]
        ctx.residual_dtype = residual.dtype
        ctx.save_for_backward(results[1], weight)
        if not any(ctx.needs_input_grad[:2]):
            ctx.mark_non_differentiable(results[1])  # it depends on x and residual only
        return results

    @staticmethod
    def backward(ctx, dy, dsum=None):  # type: ignore[override]
        needs_x, needs_residual, needs_weight, needs_bias, _, _ = ctx.needs_input_grad
        rms, shape, eps, scale = ctx.norm
        x, weight = ctx.saved_tensors
        dx = dweight = dbias = None
        if dy is None:
            dx = dsum
        elif torch.is_grad_enabled() or not _core.are_plain(dy, dsum):
            ctx.shape, ctx.eps = shape, eps
            places = {"x": 0, "residual": 1, "weight": 2, **({} if rms else {"bias": 3})}
            found = _differentiate(ctx, dy, dsum, places)
            dx, dweight, dbias = found["x"], found["weight"], found.get("bias")
        else:
            dx, dweight, dbias = needs_x or needs_residual or None, needs_weight or None, needs_bias or None
            if needs_bias and (weight is None or weight.dtype != ctx.bias_dtype):
                dbias = torch.empty(shape, dtype=ctx.bias_dtype)
            dx, dweight, dbias = _core.write_backward(rms, dy, x, shape, weight, eps, dsum, dx, dweight, dbias)
        dresidual = None
        if needs_residual and dx is not None:
            dresidual = (dx if scale == 1 else dx * scale).to(ctx.residual_dtype)
        return dx if needs_x else None, dresidual, dweight, dbias, None, None


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
    super(torch.autograd.Function, _Norm).apply,  # without the checks for transforms, of which there are none
    str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"),
)

layer_norm = _core.tensor_layer_norm
rms_norm = _core.tensor_rms_norm
add_layer_norm = _core.tensor_add_layer_norm
add_rms_norm = _core.tensor_add_rms_norm

"""The sharded norms as functions: operators of the library `evenorm` that gather messages, and their derivatives.

torch.compile treats the operators as opaque, without graph breaks. evenorm._core does the arithmetic on the tensors'
memory; _sharded_group.py exchanges the messages.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import torch
import torch.distributed as dist
import torch.fx
from torch import Tensor
from torch.autograd import forward_ad as fwd

from evenorm import _core

from ._results import contiguous_like, gradients
from ._sharded_group import Call, group_of, group_or_default, reporting_refusals

_library = torch.library.Library("evenorm", "FRAGMENT")
_library.define(
    "sharded_norm(Tensor x, Tensor? weight, Tensor? bias, bool rms, float eps, str group) -> (Tensor y, Tensor moments)"
)
_library.define(
    "sharded_norm_backward(Tensor dy, Tensor x, Tensor moments, Tensor? weight, ScalarType? bias_dtype, bool rms,"
    " float eps, str group, bool[3] output_mask) -> (Tensor dx, Tensor dweight, Tensor dbias)"
)
_operators = torch.ops.evenorm
_FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_MOMENTS = 7  # the numbers in Moments of evenorm/sharded.hpp


def _rows(t: Tensor) -> Tensor:
    return t.detach().reshape(-1, t.shape[-1]) if t.shape[-1] else t.detach().reshape(t.shape[:-1].numel(), 0)


def _lent(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.detach()


def _call(x: Tensor, weight: Tensor | None, bias_dtype: Any, rms: bool, eps: float, group: str, dy: Any) -> Call:
    return Call(
        group_of(group),
        x.shape[:-1].numel(),
        x.shape[-1] if x.dim() else 0,
        norm="RMS norm" if rms else "layer norm",
        dtype=x.dtype,
        weight=None if weight is None else weight.dtype,
        bias=bias_dtype,
        eps=eps + 0.0,  # -0.0 becomes 0.0
        dy=dy,
    )


def _sharded_norm(x, weight, bias, rms, eps, group):
    call = _call(x, weight, None if bias is None else bias.dtype, rms, eps, group, None)
    with call.reporting_failure():
        _check(x, weight, bias, eps)
        rows = _rows(x)
    rank = call.rank
    wide = any(t is not None and t.dtype == torch.float64 for t in (weight, bias))

    def moments_of(columns):
        return torch.from_numpy(_core.sharded_moments(rms, rows, columns, rank, wide, eps))

    messages, columns = call.gather(moments_of)
    y = contiguous_like(rows)
    _, moments = _core.sharded_norm(rms, rows, messages, columns, rank, wide, _lent(weight), _lent(bias), eps, y)
    return y.view(x.shape), torch.from_numpy(moments)


def _sharded_norm_backward(dy, x, moments, weight, bias_dtype, rms, eps, group, output_mask):
    call = _call(x, weight, bias_dtype, rms, eps, group, dy.dtype)
    rank = call.rank
    wide = any(t is not None and t.dtype == torch.float64 for t in (dy, weight))
    with call.reporting_failure():
        rows, dy_rows = _rows(x), _rows(dy)
        results = gradients(x, x.shape[-1:], weight, bias_dtype, output_mask)
        # Allocated even if not wanted: all processes must gather.
        dx = results[0].view(rows.shape) if output_mask[0] else torch.empty_like(rows)
    out = (dx, results[1] if output_mask[1] else None, results[2] if output_mask[2] else None)
    weight = _lent(weight)

    def sums_of(columns):
        sums = _core.sharded_sums(rms, dy_rows, rows, moments, columns, rank, wide, weight, eps, out)
        return torch.from_numpy(sums)

    messages, columns = call.gather(sums_of)
    _core.sharded_backward(rms, dy_rows, rows, moments, messages, columns, rank, wide, weight, eps, out)
    return results


_library.impl("sharded_norm", _sharded_norm, "CPU")
_library.impl("sharded_norm_backward", _sharded_norm_backward, "CPU")


@torch.library.register_fake("evenorm::sharded_norm")
def _(x, weight, bias, rms, eps, group):
    # Refuses nothing: the other processes would not be informed.
    rows = x.shape[:-1].numel() if x.dim() == 0 or x.shape[-1] == 0 else x.numel() // x.shape[-1]
    return contiguous_like(x), x.new_empty((rows, _MOMENTS), dtype=torch.float64)


@torch.library.register_fake("evenorm::sharded_norm_backward")
def _(dy, x, moments, weight, bias_dtype, rms, eps, group, output_mask):
    return gradients(x, x.shape[-1:], weight, bias_dtype, output_mask)


def _save(ctx, inputs, output):
    x, weight, bias, ctx.rms, ctx.eps, ctx.group = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.set_materialize_grads(False)
    copies = ctx.rms and not ctx.needs_input_grad[0]  # as rms_norm does
    ctx.save_for_backward(x.clone() if copies else x, weight, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, dy, _):
    x, weight, moments = ctx.saved_tensors
    if dy is None:
        dy = torch.zeros_like(x)
    wanted = list(ctx.needs_input_grad[:3])
    results = _operators.sharded_norm_backward(
        dy.contiguous(), x, moments, weight, ctx.bias_dtype, ctx.rms, ctx.eps, ctx.group, wanted
    )
    dx, dweight, dbias = (g if is_wanted else None for g, is_wanted in zip(results, wanted, strict=True))
    return dx, dweight, dbias, None, None, None


def _no_second_order(ctx, *_):
    raise NotImplementedError("sharded norms support only first-order derivatives")


for _operator in (_operators.sharded_norm, _operators.sharded_norm_backward):  # never dead code: other processes wait
    torch.fx.has_side_effect(_operator.default)
torch.library.register_autograd("evenorm::sharded_norm", _backward, setup_context=_save, lib=_library)
torch.library.register_autograd("evenorm::sharded_norm_backward", _no_second_order, lib=_library)


def _check(x: Any, weight: Any, bias: Any, eps: Any) -> None:
    for name, t in (("x", x), ("weight", weight), ("bias", bias)):
        if t is None and name != "x":
            continue
        if not isinstance(t, Tensor):
            raise TypeError(f"{name} is a {type(t).__name__}, but it should be a tensor")
        if t.is_nested:
            raise TypeError(f"{name} is nested, but sharded norms are computed of dense tensors")
        if t.dtype not in _FLOATING:
            raise TypeError(f"{name} has dtype {t.dtype}, but it should be float64, float32, bfloat16 or float16")
        if t.device.type != "cpu" or t.layout != torch.strided:
            place = t.device if t.layout == torch.strided else t.layout
            raise ValueError(f"{name} is on {place}, but sharded norms are computed of dense tensors on the CPU")
        if name == "x" and x.dim() == 0:
            raise ValueError("x has no axes, but its last axis should be this process's columns")
        if name != "x" and t.shape != x.shape[-1:]:
            raise ValueError(f"{name} has shape {tuple(t.shape)}, but x has {x.shape[-1]} columns in this process")
    if not isinstance(eps, numbers.Real):
        raise TypeError(f"eps is {eps!r}, but it should be a number")
    eps = float(eps)  # raises OverflowError for an int that no float holds
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}, but it should be finite and at least 0")


def _check_transforms(*tensors: Any) -> None:
    """Refuses forward mode and torch.func's transforms."""
    if any(t is not None and fwd.unpack_dual(t).tangent is not None for t in tensors):
        raise NotImplementedError("sharded norms do not support forward-mode derivatives")
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError("sharded norms do not support torch.func's transforms")


def sharded_norm_in(group_name: str, x: Tensor, weight: Any, bias: Any, rms: bool, eps: float | None) -> Tensor:
    """Runs either norm in the group with this name. eps None is the default of torch.nn.functional.rms_norm."""
    if eps is None and rms and isinstance(x, Tensor):
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    if not torch.compiler.is_compiling():  # compiled code checks when the operator runs
        with reporting_refusals(group_of(group_name)):
            _check(x, weight, bias, eps)
            _check_transforms(x, weight, bias)
    y: Tensor = _operators.sharded_norm(x, weight, bias, rms, float(eps), group_name)[0]  # type: ignore[arg-type]
    return y


def sharded_layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Layer norm of rows whose columns are split over the processes of a group.

    Args:
        x: a tensor of shape (..., columns): this process's columns of the rows that all processes share. It may have 0
            columns.
        weight, bias: tensors of shape (columns,), the parameters of this process's columns. None: 1 and 0.
        eps: added to the variance.
        group: the processes, in the order of the columns. None: all processes.

    Returns:
        y, of x's shape and type: this process's columns of the norm.

    Raises:
        ValueError, TypeError: an argument of this process is wrong.
        DisagreementError (a ValueError): the rows, types or eps of the processes differ, or another process has raised
            an error. All processes raise it.
    """
    return sharded_norm_in(group_or_default(group).group_name, x, weight, bias, False, eps)


def sharded_rms_norm(
    x: Tensor, weight: Tensor | None = None, eps: float | None = None, *, group: dist.ProcessGroup | None = None
) -> Tensor:
    """RMS norm of rows whose columns are split over the processes of a group. Like `sharded_layer_norm`.

    eps None: the default of torch.nn.functional.rms_norm.
    """
    return sharded_norm_in(group_or_default(group).group_name, x, weight, None, True, eps)

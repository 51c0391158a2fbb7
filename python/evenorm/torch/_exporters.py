"""Registrations for PyTorch's ONNX exporter and quantizers, and for counters of operations.

ONNX has norms of its own, so its exporter gets decompositions into PyTorch's norms. torch.compile and torch.export keep
the operators, but with dynamic shapes they take the shapes and strides of results from these decompositions, which
must therefore match the operators.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch._decomp import register_decomposition
from torch._prims_common import suggest_memory_format

from ._groups import GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from ._modules import LayerNorm, RMSNorm
from ._operators import operators
from ._results import in_order_of, varies_by_row

Sizes = Sequence[int]
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
OWN: dict[type[nn.Module], type[nn.Module]] = {
    getattr(nn, own.__name__): own
    for own in (LayerNorm, RMSNorm, GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)
}


# --- the ONNX exporter for graphs of torch.export: it decomposes operators that it does not know


def _of_one_type(norm: Callable[..., Tensor], x: Tensor, *given: Tensor | None) -> Tensor:
    """norm(x, *given) in a type that holds all of them, because ONNX's operators have a single type."""
    wide = functools.reduce(torch.promote_types, (p.dtype for p in given if p is not None), x.dtype)
    return norm(x.to(wide), *(None if p is None else p.to(wide) for p in given)).to(x.dtype)


def _norm(norm: Any, x: Tensor, shape: Sizes, weight: Any, bias: Any, eps: float, order: torch.memory_format) -> Tensor:
    by_row = varies_by_row(weight, shape)

    def of_type(x: Tensor, weight: Any, bias: Any) -> Any:
        if not by_row:
            return norm(x, shape, weight, bias, eps)
        y = norm(x, shape, None, None, eps) * weight
        return y if bias is None else y + bias

    y = _of_one_type(of_type, x, weight, bias)
    return in_order_of(x, y) if by_row else y.contiguous(memory_format=order)


@register_decomposition(operators.layer_norm.default)
def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _norm(torch.ops.aten.layer_norm, x, normalized_shape, weight, bias, eps, torch.contiguous_format)


def _pytorchs_rms_norm(x, normalized_shape, weight, bias, eps):
    y = torch.ops.aten.rms_norm.default(x, normalized_shape, weight, eps)
    return y if bias is None else y + bias


@register_decomposition(operators.rms_norm.default)
def _rms_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _norm(_pytorchs_rms_norm, x, normalized_shape, weight, bias, eps, suggest_memory_format(x))


def _after_sum(norm: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    def add_norm(x, residual, normalized_shape, weight=None, bias=None, eps=1e-5, residual_scale=1.0):
        wide = torch.promote_types(x.dtype, residual.dtype)
        s = (x.to(wide) + residual.to(wide) * residual_scale).to(x.dtype).contiguous()
        return norm(s, normalized_shape, weight, bias, eps), s

    return add_norm


register_decomposition(operators.add_layer_norm.default)(_after_sum(_layer_norm))
register_decomposition(operators.add_rms_norm.default)(_after_sum(_rms_norm))


@operators.group_norm.default.py_impl(COMPOSITE)
def _group_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    """The ONNX exporter decomposes composite operators as they are defined, so that this is their definition there."""
    if not torch.onnx.is_in_onnx_export():
        return operators.group_norm.default._op_dk(COMPOSITE, x, num_groups, weight, bias, eps=eps)

    def norm(x: Tensor, weight: Any, bias: Any) -> Any:
        if num_groups == x.shape[1] and x.dim() > 2 and x.dtype != torch.float64:  # which has no runtime's
            return torch.ops.aten.instance_norm(x, weight, bias, None, None, True, 0.0, eps, False)
        return torch.ops.aten.group_norm(x, num_groups, weight, bias, eps)

    wide = x.float() if x.dtype == torch.bfloat16 else x  # which instance norm does not take before opset 22
    return in_order_of(x, _of_one_type(norm, wide, weight, bias).to(x.dtype))


# --- tools with tables of modules or operators


def _add_ours(table: dict[Any, Any]) -> None:
    ours = OWN | {f"aten::{name}": f"evenorm::{name}" for name in ("layer_norm", "rms_norm", "group_norm")}
    table.update({own: table[known] for known, own in ours.items() if known in table})


def register_counted() -> None:
    """Makes counters of operations that are loaded count evenorm's norms like PyTorch's."""
    for module, table in (
        ("fvcore.nn.flop_count", "_DEFAULT_SUPPORTED_OPS"),
        ("ptflops.pytorch_ops", "MODULES_MAPPING"),
        ("thop.profile", "register_hooks"),
    ):
        _add_ours(getattr(sys.modules.get(module), table, {}))


register_counted()
with suppress(ImportError):  # a later PyTorch may lack static quantization, which looks up the exact class
    from torch.ao.quantization.quantization_mappings import DEFAULT_STATIC_QUANT_MODULE_MAPPINGS

    _add_ours(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)

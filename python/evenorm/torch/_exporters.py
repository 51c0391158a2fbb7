"""Registrations for PyTorch's ONNX exporter and quantizers.

ONNX has norms of its own, so its exporter gets decompositions into PyTorch's norms. torch.compile and torch.export keep
the operators, but with dynamic shapes they take the shapes and strides of results from these decompositions, which
must therefore match the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch._decomp import register_decomposition
from torch._prims_common import suggest_memory_format

from ._modules import LayerNorm
from ._operators import operators
from ._results import varies_by_row

Sizes = Sequence[int]


# --- the ONNX exporter for graphs of torch.export: it decomposes operators that it does not know


def _one_type(norm: Callable[..., Tensor], x: Tensor, shape: Sizes, given: list[Tensor | None], eps: float) -> Tensor:
    """The norm in a type that holds x and all parameters, because ONNX's operators have a single type."""
    wide = x.dtype
    for parameter in given:
        wide = wide if parameter is None else torch.promote_types(wide, parameter.dtype)
    weight, bias = (None if p is None else p.to(wide) for p in given)
    if not varies_by_row(weight, shape):
        return norm(x.to(wide), shape, weight, bias, eps).to(x.dtype)
    y = norm(x.to(wide), shape, None, None, eps) * weight
    return torch.ops.aten.copy.default(torch.empty_like(x), y if bias is None else y + bias)


@register_decomposition(operators.layer_norm.default)
def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    y = _one_type(torch.ops.aten.layer_norm.default, x, normalized_shape, [weight, bias], eps)
    return y if varies_by_row(weight, normalized_shape) else y.contiguous()


def _pytorchs_rms_norm(x, normalized_shape, weight, bias, eps):
    y = torch.ops.aten.rms_norm.default(x, normalized_shape, weight, eps)
    return y if bias is None else y + bias


@register_decomposition(operators.rms_norm.default)
def _rms_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    y = _one_type(_pytorchs_rms_norm, x, normalized_shape, [weight, bias], eps)
    kept = varies_by_row(weight, normalized_shape)
    return y if kept else y.contiguous(memory_format=suggest_memory_format(x))


@register_decomposition(operators.add_layer_norm.default)
def _add_layer_norm(x, residual, normalized_shape, weight=None, bias=None, eps=1e-5, residual_scale=1.0):
    s = _sum(x, residual, residual_scale)
    return _layer_norm(s, normalized_shape, weight, bias, eps), s


@register_decomposition(operators.add_rms_norm.default)
def _add_rms_norm(x, residual, normalized_shape, weight=None, bias=None, eps=1e-5, residual_scale=1.0):
    s = _sum(x, residual, residual_scale)
    return _rms_norm(s, normalized_shape, weight, bias, eps), s


def _sum(x: Tensor, residual: Tensor, residual_scale: float) -> Tensor:
    wide = torch.promote_types(x.dtype, residual.dtype)
    return (x.to(wide) + residual.to(wide) * residual_scale).to(x.dtype).contiguous()


# --- static quantization, which a later PyTorch may lack


def _register_quantized() -> None:
    """Registers LayerNorm for prepare() and convert() of torch.ao.quantization, which look up the exact class."""
    from torch.ao.quantization.quantization_mappings import DEFAULT_STATIC_QUANT_MODULE_MAPPINGS as MAPPINGS

    MAPPINGS[LayerNorm] = MAPPINGS[nn.LayerNorm]


with suppress(ImportError):
    _register_quantized()

"""What PyTorch's ONNX exporters and quantizers want to know of evenorm's operators and modules.

ONNX has norms of its own, so its exporters are given PyTorch's. torch.compile and torch.export leave the operators as
they are; with dynamic shapes they ask here for the shape and strides of results, which must be those of the operators.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch._decomp import register_decomposition
from torch._prims_common import suggest_memory_format

from ._modules import LayerNorm
from ._operators import operators

Sizes = Sequence[int]


# --- the ONNX exporter of torch.export's graphs: what it does not know, it looks for among decompositions


def _one_type(norm: Callable[..., Tensor], x: Tensor, shape: Sizes, given: list[Tensor | None], eps: float) -> Tensor:
    """The norm in a type that holds x's and the parameters', as ONNX's operators have one type."""
    wide = x.dtype
    for parameter in given:
        wide = wide if parameter is None else torch.promote_types(wide, parameter.dtype)
    y = norm(x.to(wide), shape, *(None if p is None else p.to(wide) for p in given), eps)
    return y.to(x.dtype)


@register_decomposition(operators.layer_norm.default)
def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _one_type(torch.ops.aten.layer_norm.default, x, normalized_shape, [weight, bias], eps).contiguous()


@register_decomposition(operators.rms_norm.default)
def _rms_norm(x, normalized_shape, weight=None, eps=1e-5):
    y = _one_type(torch.ops.aten.rms_norm.default, x, normalized_shape, [weight], eps)
    return y.contiguous(memory_format=suggest_memory_format(x))


@register_decomposition(operators.add_layer_norm.default)
def _add_layer_norm(x, residual, normalized_shape, weight=None, bias=None, eps=1e-5, residual_scale=1.0):
    s = _sum(x, residual, residual_scale)
    return _layer_norm(s, normalized_shape, weight, bias, eps), s


@register_decomposition(operators.add_rms_norm.default)
def _add_rms_norm(x, residual, normalized_shape, weight=None, eps=1e-5, residual_scale=1.0):
    s = _sum(x, residual, residual_scale)
    return _rms_norm(s, normalized_shape, weight, eps), s


def _sum(x: Tensor, residual: Tensor, residual_scale: float) -> Tensor:
    wide = torch.promote_types(x.dtype, residual.dtype)
    return (x.to(wide) + residual.to(wide) * residual_scale).to(x.dtype).contiguous()


# --- the older ONNX exporter, of TorchScript's graphs, and static quantization: both may be missing in a later PyTorch


def _refuse(name: str) -> Callable[..., NoReturn]:
    def symbol(g: Any, *arguments: Any) -> NoReturn:
        raise RuntimeError(
            f"evenorm::{name} has no equal in the older ONNX exporter: use torch.onnx.export(..., dynamo=True)"
        )

    return symbol


def _register_symbols() -> None:
    from torch.onnx import symbolic_helper
    from torch.onnx.utils import register_custom_op_symbolic

    @symbolic_helper.parse_args("v", "is", "v", "v", "f")
    def layer_norm(g: Any, x: Any, normalized_shape: list[int], weight: Any, bias: Any, eps: float) -> Any:
        if symbolic_helper._is_none(weight):
            weight = g.op("Constant", value_t=torch.ones(normalized_shape))
        parameters = [weight] if symbolic_helper._is_none(bias) else [weight, bias]
        return g.op("LayerNormalization", x, *parameters, axis_i=-len(normalized_shape), epsilon_f=eps)

    register_custom_op_symbolic("evenorm::layer_norm", layer_norm, 17)  # where ONNX begins to have it
    for name in ("rms_norm", "add_layer_norm", "add_rms_norm"):
        register_custom_op_symbolic(f"evenorm::{name}", _refuse(name), 9)


def _register_quantized() -> None:
    """prepare() and convert() of torch.ao.quantization go by the exact class."""
    from torch.ao.quantization.quantization_mappings import DEFAULT_STATIC_QUANT_MODULE_MAPPINGS as MAPPINGS

    MAPPINGS[LayerNorm] = MAPPINGS[nn.LayerNorm]


def _register_fallbacks() -> None:
    """Inductor leaves operators that it does not know as they are; where the environment says CI it refuses those that
    have a decomposition, unless it was told so. It is large, and loaded here only then."""
    from torch._inductor.lowering import make_fallback, tag_to_layout_constraint
    from torch._library.utils import get_layout_constraint_tag

    for operator in (operators.layer_norm, operators.rms_norm, operators.add_layer_norm, operators.add_rms_norm):
        constraint = tag_to_layout_constraint(get_layout_constraint_tag(operator.default, with_default=True))
        make_fallback(operator.default, layout_constraint=constraint, warn=False)


for _register in (_register_symbols, _register_quantized, *([_register_fallbacks] if os.environ.get("CI") else [])):
    with suppress(ImportError):
        _register()

"""Shared by the tests of evenorm.torch: arguments for the operators, and independent float64 references."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import evenorm.torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
NATIVE = evenorm.torch.info()["operators"] == "C++"


def norm_by_formula(x: Tensor, axes: int, weight: Any, bias: Any, eps: float, layer: bool) -> Tensor:
    """The formula in float64, composed of differentiable operators other than norms."""
    dims = list(range(x.dim() - axes, x.dim()))
    x = x.double()
    if layer:
        x = x - x.mean(dims, keepdim=True)
    y = x / ((x * x).mean(dims, keepdim=True) + eps).sqrt()
    if weight is not None:
        y = y * weight.double()
    return y if bias is None else y + bias.double()


@dataclasses.dataclass
class Case:
    """A call `function(*tensors)` with all other arguments bound, and the same call by formula."""

    name: str
    function: Callable[..., Any]
    formula: Callable[..., Any]
    tensors: tuple[Tensor, ...]


def cases(dtype: torch.dtype, shape: tuple[int, ...] = (3, 4), axes: int = 1, eps: float = 1e-3) -> list[Case]:
    """Each of the four functions with all parameters, and two without, on random leaves that require gradients."""
    generator = torch.Generator().manual_seed(sum(shape))
    normalized = shape[len(shape) - axes :]

    def leaf(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    def both(f: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
        def composed(x: Tensor, residual: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
            s = (x.double() + 0.75 * residual.double()).to(x.dtype)
            return f(s, *parameters), s

        return composed

    def layer(x: Tensor, weight: Any = None, bias: Any = None) -> Tensor:
        return norm_by_formula(x, axes, weight, bias, eps, layer=True)

    def rms(x: Tensor, weight: Any = None, bias: Any = None) -> Tensor:
        return norm_by_formula(x, axes, weight, bias, eps, layer=False)

    t = evenorm.torch
    x, residual, weight, bias = leaf(*shape), leaf(*shape), leaf(*normalized), leaf(*normalized)
    return [
        Case("layer", lambda x, w, b: t.layer_norm(x, normalized, w, b, eps), layer, (x, weight, bias)),
        Case("layer_plain", lambda x: t.layer_norm(x, normalized, eps=eps), layer, (x,)),
        Case("rms", lambda x, w, b: t.rms_norm(x, normalized, w, eps, bias=b), rms, (x, weight, bias)),
        Case("rms_plain", lambda x: t.rms_norm(x, normalized, eps=eps), rms, (x,)),
        Case("add_layer", lambda x, r, w, b: t.add_layer_norm(x, r, normalized, w, b, eps, 0.75), both(layer),
             (x, residual, weight, bias)),
        Case("add_rms", lambda x, r, w: t.add_rms_norm(x, r, normalized, w, eps, 0.75), both(rms),
             (x, residual, weight)),
        Case("rms_zero", lambda x, w, b: t.rms_norm(x, normalized, w, eps, bias=b, zero_centered=True),
             lambda x, w, b: rms(x, 1 + w.double(), b), (x, weight, bias)),
        Case("add_layer_zero", lambda x, r, w: t.add_layer_norm(x, r, normalized, w, None, eps, 0.75, zero_centered=True),
             lambda x, r, w: both(layer)(x, r, 1 + w.double()), (x, residual, weight)),
    ]  # fmt: skip


NAMES = [case.name for case in cases(torch.float64)]


def case(name: str, dtype: torch.dtype, *arguments: Any, **options: Any) -> Case:
    return next(c for c in cases(dtype, *arguments, **options) if c.name == name)


class DispatchMode(TorchDispatchMode):
    """Sees every operator, and changes nothing."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return function(*args, **(kwargs or {}))


def outputs(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def bits(t: Tensor) -> bytes:
    return t.detach().contiguous().view(torch.uint8).numpy().tobytes()


def assert_same_bits(a: Any, b: Any) -> None:
    for one, other in zip(outputs(a), outputs(b), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert bits(one) == bits(other)

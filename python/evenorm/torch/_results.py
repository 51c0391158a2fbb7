"""Allocates the operators' results, for real and for fake tensors: shapes, types and layouts."""

from collections.abc import Sequence
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import _disable_current_modes


def contiguous_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def in_order_of(x: Tensor, y: Tensor) -> Tensor:
    """y with the strides of empty_like(x), as PyTorch's element-wise operations have. Copies y if it must.

    empty_like() with these strides would be empty_permuted in core ATen, which ExecuTorch does not know.
    """
    strides = torch.empty_like(x, device="meta").stride()
    if y.stride() == strides:
        return y
    order = sorted(range(x.dim()), key=strides.__getitem__, reverse=True)
    return y.permute(order).contiguous().permute([order.index(axis) for axis in range(x.dim())])


def varies_by_row(weight: Tensor | None, normalized_shape: Sequence[int]) -> TypeGuard[Tensor]:
    """True if weight has x's axes. Results then keep the layout of x, as in group norm."""
    return weight is not None and weight.dim() != len(normalized_shape)


def norm_like(rms: bool, x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None) -> Tensor:
    """A contiguous tensor. RMS norm keeps channels-last, as PyTorch's does."""
    if varies_by_row(weight, normalized_shape):
        return torch.empty_like(x)
    if not rms:
        return contiguous_like(x)
    if _has_no_elements(x):
        return _rms_norm_without_elements(x, normalized_shape, weight)
    return torch.empty_like(x, memory_format=suggest_memory_format(x))


def _has_no_elements(x: Tensor) -> bool:
    size = x.numel()
    if isinstance(size, int):
        return size == 0
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # imports sympy, which takes a second

    return guard_or_false(size == 0)


def _rms_norm_without_elements(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None) -> Tensor:
    """Gets the strides from PyTorch on the CPU, because on the meta device multiplying empty tensors gives others."""
    given = [x] if weight is None else [x, weight]
    if not all(isinstance(number, int) for t in given for number in (*t.shape, *t.stride())):
        return contiguous_like(x)
    with _disable_current_modes():  # fake tensors
        own, *weights = (torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu") for t in given)
        strides = F.rms_norm(own, list(normalized_shape), weights[0] if weights else None).stride()
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)


def gradients(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias_dtype: torch.dtype | None,
    mask: Sequence[bool],
) -> tuple[Tensor, ...]:
    """Gradients of x, weight and bias. Those not requested are empty."""
    like_x = norm_like(False, x, normalized_shape, weight) if mask[0] else x.new_empty(0)
    dtypes = (x.dtype if weight is None else weight.dtype, bias_dtype or x.dtype)
    shape = normalized_shape if weight is None else weight.shape
    of_parameters = (
        x.new_empty(shape, dtype=dtype) if wanted else x.new_empty(0)
        for dtype, wanted in zip(dtypes, mask[1:], strict=True)
    )
    return like_x, *of_parameters

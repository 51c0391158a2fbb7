"""The operators' results before anything is in them: shapes, types and layouts, of real tensors and of fake ones."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.symbolic_shapes import guard_or_false


def contiguous_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def rms_norm_like(x: Tensor) -> Tensor:
    """Contiguous, or with its channels last where x has them last, as PyTorch's RMS norm. Without elements PyTorch's
    has the strides that its multiplication gives."""
    if guard_or_false(x.numel() == 0):
        return x * 1
    return torch.empty_like(x, memory_format=suggest_memory_format(x))


def gradients(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias_dtype: torch.dtype | None,
    mask: Sequence[bool],
) -> tuple[Tensor, ...]:
    """Those of x, weight and, where `mask` has three elements, bias; what is not asked for has no elements."""
    dtypes = (x.dtype, x.dtype if weight is None else weight.dtype, bias_dtype or x.dtype)
    shapes = (x.shape, normalized_shape, normalized_shape)
    return tuple(
        x.new_empty(shape, dtype=dtype) if wanted else x.new_empty(0)
        for shape, dtype, wanted in zip(shapes, dtypes, mask, strict=False)
    )

"""The operators' results before anything is in them: shapes, types and layouts, of real tensors and of fake ones."""

from collections.abc import Sequence

import torch
from torch import Tensor


def contiguous_like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


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

"""Norms whose weight and bias vary from row to row: group norm, instance norm and adaptive layer norm."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling
from torch.fx import Proxy

from . import _dtensors
from ._functions import (
    broadcasts_to,
    by_pytorch,
    call,
    evenorms,
    gamma_and_beta,
    has_overrides,
    has_parameter_types,
    is_norm,
    is_shape,
    is_supported,
    one_plus,
)
from ._modules import ZeroCentered
from ._operators import eager, operators
from ._tracing import is_recorded, record, sizes_of


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    zero_centered: bool = False,
) -> Tensor:
    """Group norm: torch.nn.functional.group_norm, more accurate.

    Args:
        input: a tensor (N, C, ...); float32, float64, bfloat16 or float16; any strides.
        num_groups: how many groups of equally many channels there are; a divisor of C.
        weight, bias: tensors (C) of input's type, or float32 with a 16-bit input. None: 1 and 0.
        eps: added to the (biased) variance.
        zero_centered: as in `layer_norm`.

    Returns:
        A tensor of input's shape and type, channels-last if input is, else contiguous. It has the bits of `layer_norm`
        for an input of shape (N, num_groups, C / num_groups, ...) and a weight for each channel.

    PyTorch's own function handles all other arguments and raises its own errors.

    >>> group_norm(torch.tensor([[1.0, 3.0, 4.0, 0.0]]), 2, eps=0.0)
    tensor([[-1.,  1.,  1., -1.]])
    """
    if zero_centered:
        weight, bias = gamma_and_beta(False, input, weight, bias)
    y = _by_group(input, num_groups, weight, bias, eps)
    if y is not NotImplemented:
        return y  # type: ignore[no-any-return]
    if is_recorded(input, weight, bias, zero_centered=zero_centered):
        return record(group_norm, input, num_groups, weight, bias, eps, zero_centered=zero_centered)  # type: ignore[no-any-return]
    return by_pytorch(lambda x: F.group_norm(x, num_groups, weight, bias, eps), input, weight, zero_centered)


def _by_group(x: Any, groups: Any, weight: Any, bias: Any, eps: Any) -> Any:
    """NotImplemented for what PyTorch's function should take: it also refuses a single element for each statistic."""
    y = NotImplemented if is_compiling() else eager.group_norm(x, groups, weight, bias, eps)
    if y is not NotImplemented:
        return y
    if not is_supported(x) or _dtensors.is_dtensor(x) or has_overrides(x, weight, bias):
        return NotImplemented
    shape: Any = sizes_of(x)
    if len(shape) < 2 or not isinstance(groups, (int, torch.SymInt)) or groups < 1 or shape[1] % groups != 0:
        return NotImplemented
    given = [p for p in (weight, bias) if p is not None]
    fits = all(is_supported(p) and p.device == x.device and is_shape(sizes_of(p), shape[1:2]) for p in given)
    single = shape[1] == groups and math.prod(shape[2:]) == 1 and shape[0] == 1  # in this order: it may depend on data
    if single or not fits or not is_norm(x, shape[1:], eps):
        return NotImplemented
    if not has_parameter_types(x, weight, bias):
        return NotImplemented
    return call(operators.group_norm, x, groups, weight=weight, bias=bias, eps=eps)


def ada_layer_norm(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-5) -> Tensor:
    """Adaptive layer norm over the last axis: y = (x - mean) / sqrt(var + eps) * (1 + scale) + shift, in one pass.

    Args:
        x: a tensor (..., D) of the types of `layer_norm`.
        scale, shift: tensors with as many axes as x, each as long as x's or 1, or of shape (D). With one scale for each
            sample of x (N, T, D), scale has shape (N, 1, D). 1 + scale is rounded to float32, or to float64 with such an x.
        eps: added to the (biased) variance.

    Returns:
        A tensor of x's shape and type.

    Raises:
        ValueError: scale or shift has another shape.

    >>> x = torch.tensor([[[4.0, 2.0, 8.0]], [[4.0, 2.0, 8.0]]])
    >>> ada_layer_norm(x, torch.tensor([[[0.0]], [[1.0]]]), torch.tensor([[[0.0]], [[0.5]]]))
    tensor([[[-0.2673, -1.0690,  1.3363]],
    <BLANKLINE>
            [[-0.0345, -1.6381,  3.1726]]])
    """
    if is_recorded(x, scale, shift):
        return record(ada_layer_norm, x, scale, shift, eps)  # type: ignore[no-any-return]
    for name, given in (("scale", scale), ("shift", shift)):
        if not x.is_nested and not broadcasts_to(given.shape, x.shape) and not is_shape(given.shape, x.shape[-1:]):
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}, but it should have x's axes {tuple(x.shape)}, each as long as "
                "x's or 1, or the last one alone"
            )
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    arguments = x, (x.size(-1),), one_plus(scale, wide), shift.to(wide), eps
    y = NotImplemented if is_compiling() else eager.layer_norm(*arguments)
    if y is NotImplemented:
        y = evenorms(False, *arguments)
    if y is not NotImplemented:
        return y  # type: ignore[no-any-return]
    return (F.layer_norm(x, (x.size(-1),), eps=eps) * (1 + scale) + shift).to(x.dtype)


class GroupNorm(ZeroCentered, torch.nn.GroupNorm):
    """A torch.nn.GroupNorm whose forward and backward passes are evenorm's. See `group_norm`, also for `zero_centered`.

    Checkpoints of torch.nn.GroupNorm load into this class and vice versa.

    >>> GroupNorm(2, 4, eps=0.0)(torch.tensor([[1.0, 3.0, 4.0, 0.0]]))
    tensor([[-1.,  1.,  1., -1.]], grad_fn=<ViewBackward0>)
    """

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps, zero_centered=self._zero_centered)


class _InstanceNorm(ZeroCentered, torch.nn.modules.instancenorm._InstanceNorm):
    _is_quantizable = True

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy) and not self._zero_centered:  # it has no sizes, which PyTorch's forward() checks
            return super()._apply_instance_norm(input)
        return super().forward(input)

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        own: tuple[Any, Any] = self.weight, self.bias
        weight, bias = gamma_and_beta(False, input, *own) if self._zero_centered else own
        if not self.track_running_stats and math.prod(sizes_of(input)[2:]) != 1:
            y = _by_group(input, sizes_of(input)[1], weight, bias, self.eps)
            if y is not NotImplemented:
                return y.contiguous()  # type: ignore[no-any-return]
        y = super()._apply_instance_norm(input)  # type: ignore[no-untyped-call]
        if self._zero_centered:  # weight has to have the type of the running statistics, so 1 is not added to it
            fixed = not self.training and self.track_running_stats
            statistics = (self.running_mean, self.running_var) if fixed else (None, None)
            y = y + F.instance_norm(input, *statistics, use_input_stats=not fixed, eps=self.eps)
        return y  # type: ignore[no-any-return]


class InstanceNorm1d(_InstanceNorm, torch.nn.InstanceNorm1d):
    """A torch.nn.InstanceNorm1d with evenorm's passes, and PyTorch's with track_running_stats. See `group_norm`.

    >>> InstanceNorm1d(2, eps=0.0)(torch.tensor([[[1.0, 3.0], [4.0, 0.0]]]))
    tensor([[[-1.,  1.],
             [ 1., -1.]]])
    """


class InstanceNorm2d(_InstanceNorm, torch.nn.InstanceNorm2d):
    """A torch.nn.InstanceNorm2d with evenorm's passes, and PyTorch's with track_running_stats. See `group_norm`.

    >>> InstanceNorm2d(2, eps=0.0)(torch.tensor([[[[1.0, 3.0]], [[4.0, 0.0]]]]))
    tensor([[[[-1.,  1.]],
    <BLANKLINE>
             [[ 1., -1.]]]])
    """


class InstanceNorm3d(_InstanceNorm, torch.nn.InstanceNorm3d):
    """A torch.nn.InstanceNorm3d with evenorm's passes, and PyTorch's with track_running_stats. See `group_norm`.

    >>> InstanceNorm3d(2, eps=0.0)(torch.tensor([[[[[1.0, 3.0]]], [[[4.0, 0.0]]]]]))
    tensor([[[[[-1.,  1.]]],
    <BLANKLINE>
    <BLANKLINE>
             [[[ 1., -1.]]]]])
    """

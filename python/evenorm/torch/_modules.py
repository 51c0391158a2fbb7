"""torch.nn.LayerNorm and torch.nn.RMSNorm with evenorm's forward and backward passes. All else is inherited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._functions import layer_norm, rms_norm
from ._tracing import Module


def _in_python(*_: Any) -> None:
    """A hook, so that PyTorch's fast path for Transformer layers, which would multiply by weight alone, is not taken."""


class ZeroCentered(Module):
    """The option zero_centered of the modules that derive from torch.nn's."""

    _zero_centered = False  # in a module that was converted, whose own attributes may have that name

    # Names `device`, which torch.nn.utils.skip_init looks for in the signature.
    def __init__(self, *arguments: Any, device: Any = None, zero_centered: bool = False, **options: Any) -> None:
        self._zero_centered = zero_centered
        super().__init__(*arguments, **options, **({} if device is None else {"device": device}))
        if zero_centered:
            self.register_forward_pre_hook(_in_python)

    def reset_parameters(self) -> None:
        super().reset_parameters()  # type: ignore[misc]
        if self._zero_centered and self.weight is not None:
            torch.nn.init.zeros_(self.weight)  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        return super().extra_repr() + (", zero_centered=True" if self._zero_centered else "")

    def add_module(self, name: str, module: torch.nn.Module | None) -> None:
        if self._zero_centered and name == "activation_post_process":  # its quantized norm would multiply by weight
            raise TypeError("torch.ao.quantization has no zero-centred norms: set the norm's qconfig to None")
        super().add_module(name, module)


class LayerNorm(ZeroCentered, torch.nn.LayerNorm):
    """A torch.nn.LayerNorm whose forward and backward passes are evenorm's.

    Args:
        normalized_shape (int or sequence of int): the sizes of the trailing axes to normalise together.
        eps (float): added to the variance.
        elementwise_affine (bool): whether there is a weight, and a bias unless `bias` is False.
        bias (bool): if False, there is no bias.
        device, dtype: of the parameters.
        dim (int or sequence of int): the axes to normalise, instead of the trailing ones (see `layer_norm`).
        zero_centered (bool): multiply by 1 + weight, which starts at 0 (see `layer_norm`).

    Shapes: (*, normalized_shape) to the same, without `dim`. Checkpoints of torch.nn.LayerNorm load into this class and
    vice versa.

    >>> norm = LayerNorm(3)
    >>> norm
    LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=True)
    >>> norm(torch.tensor([[4.0, 2.0, 8.0]]))
    tensor([[-0.2673, -1.0690,  1.3363]], grad_fn=<EvenormLayerNormBackward>)
    """

    _is_quantizable = True
    _dim: int | Sequence[int] | None = None  # not `dim`, which a converted module may have

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        dim: int | Sequence[int] | None = None,
        zero_centered: bool = False,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype, zero_centered=zero_centered)
        self._dim = dim

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self._dim is None else f", dim={self._dim}")

    def forward(self, input: Tensor) -> Tensor:
        # self.weight would find it through an AttributeError in __getattr__, which takes longer than a row. get() would
        # always evaluate its default.
        own = self._parameters
        weight = own["weight"] if "weight" in own else self.weight  # noqa: SIM401
        bias = own["bias"] if "bias" in own else self.bias  # noqa: SIM401
        shape, eps = self.normalized_shape, self.eps
        return layer_norm(input, shape, weight, bias, eps, dim=self._dim, zero_centered=self._zero_centered)


class RMSNorm(ZeroCentered, torch.nn.RMSNorm):
    """A torch.nn.RMSNorm whose forward and backward passes are evenorm's, in one pass each.

    Args:
        normalized_shape (int or sequence of int): the sizes of the trailing axes to normalise together.
        eps (float or None): added to the mean of squares. None: the machine epsilon of float64 if x is float64, else of
            float32.
        elementwise_affine (bool): whether there is a weight, and with `bias` a bias.
        device, dtype: of the parameters.
        bias (bool): whether a bias is added, which torch.nn.RMSNorm does not have.
        dim, zero_centered: as in `LayerNorm`.

    >>> RMSNorm(2, eps=0.0)(torch.tensor([[3.0, 4.0]]))
    tensor([[0.8485, 1.1314]], grad_fn=<EvenormRmsNormBackward>)
    """

    _dim: int | Sequence[int] | None = None  # not `dim`, which a converted module may have
    _has_bias = False  # torch.nn.RMSNorm has none, nor has one that was converted

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = False,
        dim: int | Sequence[int] | None = None,
        zero_centered: bool = False,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype, zero_centered=zero_centered)
        self._dim = dim
        self._has_bias = bias and self.elementwise_affine
        if self._has_bias:
            self.bias = torch.nn.Parameter(torch.zeros_like(self.weight))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        bias = self._parameters.get("bias")
        if bias is not None:
            torch.nn.init.zeros_(bias)

    def extra_repr(self) -> str:
        bias = ", bias=True" if self._has_bias and self.bias is not None else ""
        return super().extra_repr() + bias + ("" if self._dim is None else f", dim={self._dim}")

    def forward(self, x: Tensor) -> Tensor:
        own = self._parameters  # as in LayerNorm
        weight = own["weight"] if "weight" in own else self.weight  # noqa: SIM401
        bias = self.bias if self._has_bias else None
        shape, eps = self.normalized_shape, self.eps
        return rms_norm(x, shape, weight, eps, bias=bias, dim=self._dim, zero_centered=self._zero_centered)

"""The sharded norms as modules, with parameters for this process's columns."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from ._sharded import sharded_norm_in
from ._sharded_group import MOST_COLUMNS, Call, group_of, group_or_default, reporting_refusals
from ._tracing import Module


class _ShardedNorm(Module):
    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        local_columns: int,
        eps: float | None,
        elementwise_affine: bool,
        bias: bool,
        group: dist.ProcessGroup | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        group = group_or_default(group)
        with reporting_refusals(group):
            if not 0 <= local_columns <= MOST_COLUMNS:
                raise ValueError(f"local_columns is {local_columns}, but it should be 0 to 2^48")
            self.local_columns = local_columns
            self.eps = None if eps is None else float(eps)
            self.elementwise_affine = elementwise_affine
            self._group_name = group.group_name  # a name, because groups cannot be copied
            for name, wanted, make in (("weight", elementwise_affine, torch.ones), ("bias", bias, torch.zeros)):
                value = make(local_columns, device=device, dtype=dtype) if wanted else None
                self.register_parameter(name, None if value is None else torch.nn.Parameter(value))
        types = {name: None if t is None else t.dtype for name, t in self._parameters.items()}
        call = Call(group, 0, local_columns, module=type(self).__name__, eps=self.eps, **types)
        self.columns = tuple(call.columns_of_all())  # of each process
        if sum(self.columns) == 0:
            raise ValueError("local_columns is 0 in all processes, but rows should have columns")

    @property
    def group(self) -> dist.ProcessGroup:
        return group_of(self._group_name)

    def reset_parameters(self) -> None:
        if self.weight is not None:
            torch.nn.init.ones_(self.weight)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        columns = f"{self.local_columns} of {sum(self.columns)}"
        return f"{columns}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class ShardedLayerNorm(_ShardedNorm):
    """Layer norm of rows whose columns are split over the processes of a group: torch.nn.LayerNorm for one axis.

    All processes of the group construct it together. Each then passes its columns of the same rows.

    Args:
        local_columns (int): how many columns this process has; it may be 0.
        eps (float): added to the variance.
        elementwise_affine (bool): whether there is a weight, and a bias unless `bias` is False.
        bias (bool): if False, there is no bias.
        group: the processes, in the order of the columns. None: all processes.
        device, dtype: of the parameters.

    Shapes: (*, local_columns) to the same.

    Raises:
        DisagreementError: the processes' options differ.
    """

    def __init__(
        self,
        local_columns: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(local_columns, eps, elementwise_affine, bias and elementwise_affine, group, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return sharded_norm_in(self._group_name, input, self.weight, self.bias, False, self.eps)


class ShardedRMSNorm(_ShardedNorm):
    """RMS norm of rows whose columns are split over the processes of a group: torch.nn.RMSNorm for one axis.

    All arguments are as in `ShardedLayerNorm`, except that there is no bias.

    Args:
        eps (float or None): added to the mean of squares. None: the machine epsilon of float64 if x is float64, else of
            float32.
    """

    def __init__(
        self,
        local_columns: int,
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(local_columns, eps, elementwise_affine, False, group, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return sharded_norm_in(self._group_name, input, self.weight, None, True, self.eps)

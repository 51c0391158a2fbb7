"""Normalises DTensors whose normalised axis is sharded with the norms over processes, instead of gathering x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _dtensors


def mesh_axis_of_columns(x: Tensor, normalized_shape: Sequence[int], *parameters: Tensor | None) -> int | None:
    """The mesh axis over which x's single normalised axis is sharded. None if it is not sharded by one mesh axis."""
    if not _dtensors.is_dtensor(x) or len(normalized_shape) != 1:
        return None
    if not all(t is None or (_dtensors.is_dtensor(t) and t.dim() == 1) for t in parameters):
        return None
    placements: Any = x.placements  # type: ignore[attr-defined]
    axes = [axis for axis, place in enumerate(placements) if place.is_shard(x.dim() - 1)]
    whole = all(type(place).__name__ in ("Shard", "Replicate") for place in placements)
    return axes[0] if len(axes) == 1 and whole else None


def norm(x: Any, weight: Any, bias: Any, eps: float, rms: bool, axis: int) -> Tensor:
    """Normalises such an x; y has its placements. Parameters of any placement are sharded like x's columns."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    from ._sharded import sharded_norm_in

    mesh, places = x.device_mesh, x.placements
    own = [Shard(0) if i == axis else Replicate() for i in range(len(places))]
    # The parameters' gradients are partial sums over the processes that hold other rows.
    summed = [
        Shard(0) if i == axis else Partial() if place.is_shard() else Replicate() for i, place in enumerate(places)
    ]
    own_weight, own_bias = (
        None if t is None else t.redistribute(mesh, own).to_local(grad_placements=summed) for t in (weight, bias)
    )
    local = x.to_local(grad_placements=places)
    y = sharded_norm_in(mesh.get_group(axis).group_name, local, own_weight, own_bias, rms, eps)
    # The shape is passed because columns may be sharded unevenly.
    strides = torch.empty(x.shape, device="meta").stride()
    result: Tensor = DTensor.from_local(y, mesh, places, run_check=False, shape=x.shape, stride=strides)
    return result

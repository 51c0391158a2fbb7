"""Sums of parameter gradients over processes that have different rows."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from ._sharded_group import group_or_default


def sum_sequence_parallel_gradients(
    modules: torch.nn.Module | Iterable[torch.nn.Module], *, group: dist.ProcessGroup | None = None
) -> None:
    """Adds up dweight and dbias of norms whose rows are split over a group (sequence parallel): each process has seen
    its own rows alone. To be called by all processes after the backward pass; one all-reduce for each type of gradient.

    Args:
        modules: the norms; of other modules, all parameters in them.
        group: the processes that have different rows of one sequence; None: all.
    """
    group = group_or_default(group)
    if isinstance(modules, torch.nn.Module):
        modules = [modules]
    by_type: dict[torch.dtype, list[torch.Tensor]] = {}
    for module in modules:
        for parameter in module.parameters():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:  # of a process without rows: the others wait for its share
                parameter.grad = torch.zeros_like(parameter)
            by_type.setdefault(parameter.grad.dtype, []).append(parameter.grad)
    for gradients in by_type.values():
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat, group=group)
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

"""Sums of parameter gradients over processes that hold different rows."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from ._sharded_group import group_or_default


def sum_sequence_parallel_gradients(
    modules: torch.nn.Module | Iterable[torch.nn.Module], *, group: dist.ProcessGroup | None = None
) -> None:
    """Sums dweight and dbias of norms whose rows are split over a group (sequence parallel).

    Each process has gradients of its own rows only. All processes of the group call this after the backward pass. It
    runs one all-reduce for each type of gradient and overwrites the parameters' grad.

    Args:
        modules: the norms. Of any other module, all parameters are summed.
        group: the processes that hold different rows of one sequence. None: all processes.
    """
    group = group_or_default(group)
    if isinstance(modules, torch.nn.Module):
        modules = [modules]
    by_type: dict[torch.dtype, list[torch.Tensor]] = {}
    for module in modules:
        for parameter in module.parameters():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:  # this process had no rows, but the others wait for its gradients
                parameter.grad = torch.zeros_like(parameter)
            by_type.setdefault(parameter.grad.dtype, []).append(parameter.grad)
    for gradients in by_type.values():
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat, group=group)
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

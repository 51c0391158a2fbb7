"""Checkpoints of sharded norms: joins shards to the state_dict of a torch.nn module, and splits it again."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from ._sharded_group import all_gather
from ._sharded_modules import ShardedLayerNorm, ShardedRMSNorm


def join_state_dict(module: ShardedLayerNorm | ShardedRMSNorm) -> dict[str, Tensor]:
    """Returns, in every process, the state_dict that torch.nn.LayerNorm or RMSNorm would have for whole rows.

    All processes of the module's group call it together.
    """
    size, most = len(module.columns), max(module.columns)
    whole = {}
    for name, own in module.state_dict().items():
        padded = own.new_zeros((1, most))
        padded[0, : own.shape[0]] = own
        gathered = own.new_empty((size, most))
        all_gather(gathered, padded, group=module.group)
        whole[name] = torch.cat([row[:n] for row, n in zip(gathered, module.columns, strict=True)])
    return whole


def load_whole_state_dict(module: ShardedLayerNorm | ShardedRMSNorm, state_dict: Mapping[str, Tensor]) -> None:
    """Loads this process's columns of the state_dict of a torch.nn.LayerNorm or RMSNorm. Exchanges nothing.

    Raises:
        ValueError: a parameter does not have as many columns as the rows.
        RuntimeError: as torch.nn.Module.load_state_dict.
    """
    rank = dist.get_rank(module.group)
    total, first = sum(module.columns), sum(module.columns[:rank])
    for name, value in state_dict.items():
        if value.shape != (total,):
            raise ValueError(f"{name} has shape {tuple(value.shape)}, but rows have {total} columns")
    module.load_state_dict({name: value[first : first + module.columns[rank]] for name, value in state_dict.items()})

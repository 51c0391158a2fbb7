"""Norms whose normalised axis is split over the processes of a torch.distributed group.

    norm = evenorm.torch.distributed.ShardedRMSNorm(columns_of_this_process, group=group)
    y = norm(x)                     # x: (..., columns_of_this_process)

Each process has some columns of x, weight and bias: any number, including none. x itself is never sent. All processes
compute the same statistics, bit for bit. If all cuts are at multiples of 1024 columns, y and the gradients have the
bits of the unsplit norm. docs/distributed.md documents which groups are supported and what is exchanged.
"""

from __future__ import annotations

from ._sequence_parallel import sum_sequence_parallel_gradients
from ._sharded import sharded_layer_norm, sharded_rms_norm
from ._sharded_group import DisagreementError
from ._sharded_modules import ShardedLayerNorm, ShardedRMSNorm
from ._sharded_state import join_state_dict, load_whole_state_dict

__all__ = [
    "DisagreementError",
    "ShardedLayerNorm",
    "ShardedRMSNorm",
    "join_state_dict",
    "load_whole_state_dict",
    "sharded_layer_norm",
    "sharded_rms_norm",
    "sum_sequence_parallel_gradients",
]

"""Rules for PyTorch's DTensors: if only axes of rows are sharded, the operators run without communication.

Each process normalises its own rows, so results have the bits of a single process. Gradients of parameters are partial
sums. If rows themselves are sharded, DTensor gathers them first, as for PyTorch's own norms. The rules are registered
only after the program has imported torch.distributed.tensor, because that import takes half a second.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch import Tensor

from ._tracing import run_while_tracing

_NAMES = [name for norm in ("layer_norm", "rms_norm") for name in (norm, f"add_{norm}", f"{norm}_backward")]


def is_dtensor(t: Tensor) -> bool:
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(t, loaded.DTensor)


@run_while_tracing
def have_rules() -> bool:
    """True if DTensors know the operators. False if no DTensor can exist, or if PyTorch's registry has changed."""
    return "torch.distributed.tensor" in sys.modules and _register()


@functools.cache
def _register() -> bool:
    try:
        from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
        from torch.distributed.tensor._ops.single_dim_strategy import register_single_dim_strategy
    except ImportError:
        return False
    for name in _NAMES:
        operator = getattr(torch.ops.evenorm, name).default
        # DTensor caches a decision for equal arguments. Lists and numbers are compared only from `first` on.
        # torch.distributed.tensor.experimental.register_dtensors ignores lists, so output_masks would be confused.
        first = [argument.name for argument in operator._schema.arguments].index("normalized_shape")
        register_single_dim_strategy([operator], schema_info=RuntimeSchemaInfo(first, ["eps", "residual_scale"]))(
            _rules
        )
    return True


def _rules(operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[list[Any]]:
    """One rule for each axis of rows: the placements of the results, then those of the tensor arguments."""
    from torch.distributed.tensor import Partial, Replicate
    from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

    names = (argument.name for argument in operator._schema.arguments)
    given = dict(zip(names, arguments, strict=False)) | keywords
    rules: list[list[Any]] = []
    tensors = {name: value for name, value in given.items() if hasattr(value, "shape")}
    axes = len(given["x"].shape)
    for axis in range(axes - len(given["normalized_shape"])):
        rows = _ShardingPlaceholder(axis)
        varies = "weight" in tensors and len(tensors["weight"].shape) == axes and tensors["weight"].shape[axis] != 1
        parameters, sums = (rows, rows) if varies else (Replicate(), Partial("sum"))
        results: list[Any] = [sums if r.name in ("dweight", "dbias") else rows for r in operator._schema.returns]
        if not given.get("output_mask", (True,))[0]:
            results[0] = Replicate()  # dx was not requested and is empty
        rules.append([*results, *(parameters if name in ("weight", "bias") else rows for name in tensors)])
    return rules

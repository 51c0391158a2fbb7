"""What PyTorch's DTensors are told of the operators: whole rows stay where they are, whatever axis of rows is sharded.

Each process runs evenorm on its own rows, so results have the bits of one process; gradients of parameters are parts of
a sum. Rows in parts are gathered first, as for PyTorch's own norms. The rules are registered once PyTorch's DTensors are
loaded, never before: that import takes half a second.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch import Tensor

_RESULTS = {
    "layer_norm": ("y",),
    "rms_norm": ("y",),
    "add_layer_norm": ("y", "sum"),
    "add_rms_norm": ("y", "sum"),
    "layer_norm_backward": ("dx", "dweight", "dbias"),
    "rms_norm_backward": ("dx", "dweight"),
}


def is_dtensor(t: Tensor) -> bool:
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(t, loaded.DTensor)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # runs while a compiler traces
def have_rules() -> bool:
    """Do DTensors know the operators? False as long as there can be none, and where PyTorch's registry is another."""
    return "torch.distributed.tensor" in sys.modules and _register()


@functools.cache
def _register() -> bool:
    try:
        from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
        from torch.distributed.tensor._ops.single_dim_strategy import register_single_dim_strategy
    except ImportError:
        return False
    for name in _RESULTS:
        operator = getattr(torch.ops.evenorm, name).default
        # DTensor remembers what it did for the same arguments; lists and numbers count from the one named here on.
        # (torch.distributed.tensor.experimental.register_dtensors leaves lists out: one output_mask gets another's.)
        first = [argument.name for argument in operator._schema.arguments].index("normalized_shape")
        register_single_dim_strategy([operator], schema_info=RuntimeSchemaInfo(first))(_rules)
    return True


def _rules(operator: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[list[Any]]:
    """One rule for each axis that numbers rows: where the results are, then where the tensors among the arguments."""
    from torch.distributed.tensor import Partial, Replicate
    from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

    names = (argument.name for argument in operator._schema.arguments)
    given = dict(zip(names, arguments, strict=False)) | keywords
    rules: list[list[Any]] = []
    for axis in range(len(given["x"].shape) - len(given["normalized_shape"])):
        rows = _ShardingPlaceholder(axis)
        results: list[Any] = [
            Partial("sum") if name in ("dweight", "dbias") else rows for name in _RESULTS[operator._opname]
        ]
        if not given.get("output_mask", (True,))[0]:
            results[0] = Replicate()  # dx, not asked for: of no elements
        tensors = [name for name, value in given.items() if hasattr(value, "shape")]
        rules.append([*results, *(Replicate() if name in ("weight", "bias") else rows for name in tensors)])
    return rules

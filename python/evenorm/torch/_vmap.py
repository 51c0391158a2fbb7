"""torch.vmap of the operators. A sample has the same bits as alone.

Rows do not depend on each other, so a batch of rows is a single call. Parameters that differ for each sample, and sums
over the rows of a sample, take one call per sample.
"""

from __future__ import annotations

from typing import Any

import torch

from ._operators import operators


def _moved(t: Any, dim: int | None, info: Any) -> Any:
    """`t` with its batch axis first, or expanded to a batch if it has none."""
    if not isinstance(t, torch.Tensor):
        return t
    return t.unsqueeze(0).expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)


def _at_once(op: Any, info: Any, in_dims: Any, args: Any, batched: tuple[int, ...]) -> Any:
    """Makes one call. `batched` are the positions of the arguments that have rows."""
    moved = [_moved(arg, in_dims[i], info) if i in batched else arg for i, arg in enumerate(args)]
    return op(*moved)


def _one_by_one(op: Any, info: Any, in_dims: Any, args: Any) -> Any:
    def sample(i: int) -> Any:
        return op(*(arg if dim is None else arg.select(dim, i) for arg, dim in zip(args, in_dims, strict=True)))

    if info.batch_size == 0:  # a sample of zeros gives the shapes; a sum over nothing keeps it in the graph
        zeros = [arg if dim is None else arg.sum(dim) for arg, dim in zip(args, in_dims, strict=True)]
        result = op(*zeros)
        if isinstance(result, torch.Tensor):
            return result.expand(0, *result.shape)
        return tuple(part.expand(0, *part.shape) for part in result)
    results = [sample(i) for i in range(info.batch_size)]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results)
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))


def _register(name: str, rows: tuple[int, ...], parameters: tuple[int, ...], mask: int | None = None) -> None:
    """Registers an operator's rule. rows, parameters and mask are positions of arguments: those with x's shape, weight
    and bias, and the backward's output_mask."""
    op = getattr(operators, name).default

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        dims = [dim if isinstance(arg, torch.Tensor) else None for arg, dim in zip(args, in_dims, strict=True)]
        sums_rows = mask is not None and any(args[mask][1:])
        if sums_rows or any(i < len(args) and dims[i] is not None for i in parameters):
            result = _one_by_one(op, info, dims, args)
        else:
            result = _at_once(op, info, dims, args, rows)
            if mask is not None:  # gradients that were not requested stay empty, but get the batch axis
                result = tuple(
                    r if wanted else r.new_empty(info.batch_size, 0)
                    for r, wanted in zip(result, args[mask], strict=True)
                )
        return result, 0 if isinstance(result, torch.Tensor) else (0,) * len(result)

    torch.library.register_vmap(op, rule)


for _norm in ("layer_norm", "rms_norm"):
    _register(_norm, rows=(0,), parameters=(2, 3))
    _register(f"add_{_norm}", rows=(0, 1), parameters=(3, 4))
    _register(f"{_norm}_backward", rows=(0, 1, 7), parameters=(3,), mask=6)

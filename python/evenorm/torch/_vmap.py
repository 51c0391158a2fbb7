"""torch.vmap of the operators, in one call. A sample has the same bits as alone.

Rows do not depend on each other, so a batch of rows is a call like any other. If samples have their own parameters or
sums over rows, weight and bias get x's axes, of which the first is the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._operators import operators

_ROWS = ("x", "residual", "dy", "dsum")  # the arguments of x's shape


def _moved(t: Tensor, dim: int | None, size: int) -> Tensor:
    """`t` with its batch axis first, or expanded to a batch if it has none."""
    return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)


def _with_axes_of(x: Tensor, parameter: Tensor) -> Tensor:
    """A batch of parameters with as many axes as the batch of x."""
    size, *shape = parameter.shape
    return parameter.reshape(size, *[1] * (x.dim() - parameter.dim()), *shape)


def _register(name: str) -> None:
    op = getattr(operators, name).default
    names = [argument.name for argument in op._schema.arguments]

    def rule(info: Any, in_dims: Any, *args: Any, **options: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        dims = dict(zip(names, in_dims, strict=False))
        for one in _ROWS:
            if isinstance(given.get(one), Tensor):
                given[one] = _moved(given[one], dims[one], info.batch_size)
        shape, mask = given["normalized_shape"], given.get("output_mask", (True,))
        parameters = {one: given[one] for one in ("weight", "bias") if isinstance(given.get(one), Tensor)}
        has_own = [dims[one] is not None or list(given[one].shape) != list(shape) for one in parameters]
        of_parameter = shape
        if any(has_own) or any(mask[1:]):
            x = given["x"]
            if "weight" not in parameters:
                given["weight"] = parameters["weight"] = parameters.get("bias", x).new_ones(()).expand(shape)
                dims["weight"] = None
            for one, parameter in parameters.items():
                batch = _moved(parameter, dims[one], info.batch_size)
                given[one], of_parameter = _with_axes_of(x, batch), batch.shape[1:]
        results = op(**given, **options)
        if name.endswith("_backward"):  # gradients that were not requested stay empty, but get the batch axis
            shapes = (given["x"].shape[1:], of_parameter, of_parameter)
            results = tuple(
                result.reshape(info.batch_size, *(one if wanted else (0,)))
                for result, one, wanted in zip(results, shapes, mask, strict=True)
            )
        return results, 0 if isinstance(results, Tensor) else (0,) * len(results)

    torch.library.register_vmap(op, rule)


for _norm in ("layer_norm", "rms_norm"):
    for _name in (_norm, f"add_{_norm}", f"{_norm}_backward"):
        _register(_name)

"""What the modules for Flax's two APIs share: which calls evenorm computes, and the call of the norm."""

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import jax.numpy as jnp
from flax.linen.dtypes import canonicalize_dtype

TYPES = {jnp.dtype(name) for name in ("float64", "float32", "bfloat16", "float16")}


def normalized_axes(module: Any, x: Any, mask: Any) -> tuple[int, ...] | None:
    """The axes that a module normalises, ascending. None if Flax's own implementation should run.

    That is the case for masks, statistics over several devices, features on other axes than the normalised ones, types
    other than evenorm's four, rows without elements, and an epsilon that evenorm refuses or that is traced.
    """
    types = [jnp.asarray(x).dtype, jnp.dtype(module.param_dtype), *([module.dtype] if module.dtype is not None else [])]
    reduced, features = (_axes(axes, jnp.ndim(x)) for axes in (module.reduction_axes, module.feature_axes))
    handled = (
        mask is None
        and module.axis_name is None
        and reduced == features != ()
        and all(jnp.shape(x)[axis] for axis in reduced)
        and isinstance(module.epsilon, Real)
        and 0 <= float(module.epsilon) < math.inf
        and all(jnp.dtype(dtype) in TYPES for dtype in types)
    )
    if module.zero_centered and not handled:
        raise ValueError("Flax, which has no zero_centered, computes masks, axis_name, other axes, types and epsilons")
    return reduced if handled else None


def compute(norm: Callable[..., Any], module: Any, x: Any, axes: tuple[int, ...], scale: Any, bias: Any) -> Any:
    """The norm of x with a module's epsilon, of the type that Flax's module would return."""
    dtype = canonicalize_dtype(x, scale, bias, dtype=module.dtype)
    options = {"eps": module.epsilon, "axis": axes, "zero_centered": module.zero_centered, "dtype": dtype}
    return norm(x, None, scale, bias=bias, **options)


def _axes(axes: int | Iterable[int], rank: int) -> tuple[int, ...]:
    return tuple(sorted({a + rank if a < 0 else a for a in (axes if isinstance(axes, Iterable) else (axes,))}))

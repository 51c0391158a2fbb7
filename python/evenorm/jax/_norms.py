"""The functions for JAX: signatures, documentation and checks. The library makes the checks, when a call is traced."""

import itertools
from typing import Any, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from evenorm import _core
from evenorm._norms import Axes

from ._calls import Norm, apply


def layer_norm(
    x: ArrayLike,
    normalized_shape: Axes = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: Axes = None,
    zero_centered: bool = False,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """Layer norm over one or several axes: y = (x - mean) / sqrt(var + eps) * weight + bias.

    Args:
        x: float32, bfloat16, float16 or (if jax_enable_x64 is on) float64, of any shape.
        normalized_shape: the sizes of the trailing axes to normalise together, an int or several.
        weight, bias: arrays of the normalised axes' shape, each of any of the four types. None: 1 and 0.
        eps: a finite number, at least 0; not a traced array.
        axis: the axes to normalise together, instead of normalized_shape: an int or several, negative from the end.
        zero_centered: multiply by 1 + weight instead of weight.
        dtype: the type of y, one of the four. None: x's type.

    Returns:
        y, of x's shape. It has the bits of `evenorm.layer_norm` of the same arrays, and its gradients have the bits of
        `evenorm.layer_norm_backward`, each in the type of its array. Under vmap, each sample has the bits that it has
        alone.

    Raises:
        TypeError, ValueError: as `evenorm.layer_norm`, when the call is traced.

    >>> import jax.numpy as jnp
    >>> x = jnp.array([[4.0, 2, 8], [1, 1, 1]])
    >>> print(layer_norm(x, 3, jnp.array([1.5, 1, 0.5]), jnp.array([0.5, 0, -0.5])).round(4))
    [[ 0.0991 -1.069   0.1682]
     [ 0.5     0.     -0.5   ]]
    """
    return _norm(False, x, normalized_shape, weight, bias, eps, axis, zero_centered, dtype)


def rms_norm(
    x: ArrayLike,
    normalized_shape: Axes = None,
    weight: ArrayLike | None = None,
    eps: SupportsFloat | None = None,
    *,
    bias: ArrayLike | None = None,
    axis: Axes = None,
    zero_centered: bool = False,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """RMS norm over one or several axes: y = x / sqrt(mean(x**2) + eps) * weight + bias.

    Args:
        eps: a finite number, at least 0; not a traced array. None: 2**-52 if x is float64, else 2**-23 (the machine
            epsilons).
        x, normalized_shape, weight, bias, axis, zero_centered, dtype: as in `layer_norm`.

    Returns:
        y, as in `layer_norm`.

    >>> import jax.numpy as jnp
    >>> print(rms_norm(jnp.array([[3.0, -3], [0, 0]]), 2, eps=0))
    [[ 1. -1.]
     [ 0.  0.]]
    """
    return _norm(True, x, normalized_shape, weight, bias, eps, axis, zero_centered, dtype)


def _norm(
    rms: bool,
    x: ArrayLike,
    normalized_shape: Axes,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    eps: SupportsFloat | None,
    axis: Axes,
    zero_centered: bool,
    dtype: DTypeLike | None,
) -> jax.Array:
    arrays = [None if array is None else jnp.asarray(array) for array in (x, weight, bias)]
    # The checks see one element that repeats, so errors are those of NumPy's arrays.
    shapes, normalized_shape = _numbered([None if a is None else a.shape for a in arrays], normalized_shape)
    like_x, like_weight, like_bias = (
        None if a is None else np.broadcast_to(np.empty((), a.dtype), shape)
        for a, shape in zip(arrays, shapes, strict=True)
    )
    y_dtype = jax.dtypes.canonicalize_dtype(like_x.dtype if dtype is None and like_x is not None else dtype)
    axes, number = _core.check_norm(
        rms, like_x, normalized_shape, like_weight, like_bias, eps, axis, zero_centered, y_dtype
    )
    return apply(Norm(rms, axes, number, bool(zero_centered), y_dtype, len(shapes[0])), *arrays)


def _numbered(shapes: list[Any], normalized_shape: Any) -> tuple[list[Any], Any]:
    """Both with numbers instead of the symbolic sizes of jax.export, each a number that no other size has."""
    sizes = [n for shape in shapes if shape is not None for n in shape]
    if all(isinstance(n, int) for n in sizes):
        return shapes, normalized_shape
    given = np.ravel(np.array(normalized_shape, object)).tolist()
    unused = itertools.filterfalse({*sizes, *given}.__contains__, itertools.count(2))
    numbers = {n: next(unused) for n in sizes if not isinstance(n, int)}
    shapes = [shape if shape is None else [numbers.get(n, n) for n in shape] for shape in shapes]
    return shapes, normalized_shape if normalized_shape is None else [numbers.get(n, n) for n in given]

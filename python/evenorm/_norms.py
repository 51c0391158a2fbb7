"""The NumPy functions: signatures and documentation. The library does all work and all checks.

An Array is a NumPy array, an object with DLPack or the buffer protocol (read in place), or a sequence of numbers.
"""

import operator
from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from evenorm import _core

Array: TypeAlias = Any
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | np.ndarray[Any, np.dtype[np.integer[Any]]] | None
Result: TypeAlias = Any  # the object passed as `out`, else a new array
NewArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def layer_norm(
    x: Array,
    normalized_shape: Axes = None,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: Axes = None,
    zero_centered: bool = False,
    out: Array | None = None,
    return_stats: bool = False,
) -> Result:
    """Layer norm over one or several axes: y = (x - mean) / sqrt(var + eps) * weight + bias.

    Args:
        x: float64, float32, float16 or bfloat16 (from ml_dtypes), of any shape and strides.
        normalized_shape: the sizes of the trailing axes to normalise together, an int or several.
        weight, bias: arrays of the normalised axes' shape, or with as many axes as x, each as long as x's or 1. Each has
            any of the four types. None: 1 and 0.
        eps: a finite number, at least 0.
        axis: the axes to normalise together, instead of normalized_shape: an int or several, negative from the end.
        zero_centered: multiply by 1 + weight instead of weight.
        out: the output array for y, of x's shape and any of the four types. It may be x.
        return_stats: also return mean and rstd = 1 / sqrt(var + eps).

    Returns:
        y, or (y, mean, rstd). y is `out`, or a new array of x's shape and type. mean and rstd are float64, in the shape
        of the axes that are not normalised. y is within 4 u (|weight| max|xhat| + |bias|) of the exact result (5 u if
        zero_centered; rms_norm: 3 u and 4 u), where u is 2**-24, or 2**-53 if any array is float64; see
        docs/numerics.md. The bits do not depend on the batch, the layout or the number of threads.

    Raises:
        TypeError: an array has another type, a sequence holds something else than numbers, or an argument has the
            wrong kind.
        ValueError: shapes do not match, x lacks an axis, eps is negative, or an output overlaps an input.

    >>> import numpy as np
    >>> x = np.array([[4, 2, 8], [1, 1, 1]], dtype=np.float32)
    >>> y = layer_norm(x, 3, np.float32([1.5, 1, 0.5]), np.float32([0.5, 0, -0.5]))
    >>> print(y.round(4))
    [[ 0.0991 -1.069   0.1682]
     [ 0.5     0.     -0.5   ]]
    >>> y, mean, rstd = layer_norm(x, axis=-1, return_stats=True)
    >>> mean
    array([4.66666667, 1.        ])
    """
    return _core.norm(False, x, normalized_shape, weight, bias, eps, axis, zero_centered, out, return_stats)


def rms_norm(
    x: Array,
    normalized_shape: Axes = None,
    weight: Array | None = None,
    eps: SupportsFloat | None = None,
    *,
    bias: Array | None = None,
    axis: Axes = None,
    zero_centered: bool = False,
    out: Array | None = None,
    return_stats: bool = False,
) -> Result:
    """RMS norm over one or several axes: y = x / sqrt(mean(x**2) + eps) * weight + bias.

    Args:
        eps: a finite number, at least 0. None: 2**-52 if x is float64, else 2**-23 (the machine epsilons).
        x, normalized_shape, weight, bias, axis, zero_centered, out: as in `layer_norm`.
        return_stats: also return rstd = 1 / sqrt(mean(x**2) + eps), as in `layer_norm`.

    Returns:
        y, or (y, rstd), as in `layer_norm`.

    >>> import numpy as np
    >>> x = np.array([[3, 4], [0, 0]], dtype=np.float64)
    >>> rms_norm(x, 2, eps=0)
    array([[0.84852814, 1.13137085],
           [0.        , 0.        ]])
    >>> rms_norm(x, 2, [1, -1], eps=0, out=x) is x
    True
    """
    return _core.norm(True, x, normalized_shape, weight, bias, eps, axis, zero_centered, out, return_stats)


def group_norm(
    x: Array,
    num_groups: SupportsIndex,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    out: NewArray | None = None,
    return_stats: bool = False,
) -> Result:
    """Group norm: `layer_norm` of each sample's groups of channels, with a weight and a bias for each channel.

    Args:
        x: an array (N, C, ...) of the types of `layer_norm`, of any strides, or a sequence of numbers.
        num_groups: how many groups of equally many channels there are; a divisor of C.
        weight, bias: arrays (C,).
        eps, out, return_stats: as in `layer_norm`; out is a NumPy array, and mean and rstd have shape (N, num_groups).

    Returns:
        What `layer_norm` returns, with its bits, for x of shape (N, num_groups, C / num_groups, ...).

    >>> import numpy as np
    >>> x = np.float32([[[1, 3], [5, 7], [0, 4], [4, 0]]])
    >>> print(group_norm(x, 2, [1, 1, 1, 2], [0, 0, 1, 0])[0].round(2))
    [[-1.34 -0.45]
     [ 0.45  1.34]
     [ 0.    2.  ]
     [ 2.   -2.  ]]
    """
    x = _array(x, np.float64)
    whole, groups = tuple(x.shape), operator.index(num_groups)
    if len(whole) < 2 or groups < 1 or whole[1] % groups:
        raise ValueError(f"x has shape {whole}, but it should be (N, C, ...), where num_groups, {groups}, divides C")
    if 0 in whole[1:]:
        raise ValueError(f"x has shape {whole}, but only its first axis may be empty")
    if out is not None and not (isinstance(out, np.ndarray) and out.shape == whole):
        raise ValueError(f"out should be a NumPy array of x's shape {whole}")
    split = (whole[0], groups, whole[1] // groups, *whole[2:])

    def by_channel(name: str, parameter: Array | None) -> Array | None:
        if parameter is None:
            return None
        values = _array(parameter, np.float64 if "float64" in str(x.dtype) else np.float32)
        if tuple(values.shape) != whole[1:2]:
            raise ValueError(f"{name} has shape {tuple(values.shape)}, but x has {whole[1]} channels")
        return values.reshape(1, *split[1:3], *(1 for _ in whole[2:]))

    scale = by_channel("weight", weight)
    if scale is None:  # a weight makes channels be summed apart, in any layout
        scale = np.broadcast_to(np.float32(1), (1, *split[1:3], *(1 for _ in whole[2:])))
    result = layer_norm(
        x.reshape(split),
        weight=scale,
        bias=by_channel("bias", bias),
        eps=eps,
        axis=tuple(range(2, len(split))),
        out=None if out is None else out.reshape(split),
        return_stats=return_stats,
    )
    y = out if out is not None else (result[0] if return_stats else result).reshape(whole)
    return (y, *result[1:]) if return_stats else y


def _array(a: Any, of_numbers: type) -> Any:
    """An array of any library, to be reshaped. Numbers in lists get the given type. The core checks what arrays hold.

    >>> _array([1, 2], np.float32)
    array([1., 2.], dtype=float32)
    """
    if hasattr(a, "reshape"):
        return a
    if hasattr(a, "__dlpack__"):
        return np.from_dlpack(a)
    values = np.asarray(a)
    return values.astype(of_numbers) if isinstance(a, list | tuple) and values.dtype.kind in "iuf" else values


def instance_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    out: NewArray | None = None,
    return_stats: bool = False,
) -> Result:
    """Instance norm of an array (N, C, ...): `group_norm` with a group for each channel.

    Args:
        x, weight, bias, eps, out, return_stats: as in `group_norm`. mean and rstd have shape (N, C).

    Returns:
        What `group_norm` returns.

    >>> print(instance_norm([[[1.0, 3.0], [5.0, 5.0]]], eps=0).tolist())
    [[[-1.0, 1.0], [0.0, 0.0]]]
    """
    x = _array(x, np.float64)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    return group_norm(x, max(channels, 1), weight, bias, eps, out=out, return_stats=return_stats)


def layer_norm_backward(
    dy: Array,
    x: Array,
    normalized_shape: Axes = None,
    weight: Array | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: Axes = None,
    mean: Array | None = None,
    rstd: Array | None = None,
    dsum: Array | None = None,
    zero_centered: bool = False,
    accumulate: bool = False,
    param_dtype: DTypeLike | None = None,
    out: tuple[Array | None, Array | None, Array | None] | None = None,
) -> tuple[Result, Result, Result]:
    """The gradients of `layer_norm` with respect to x, weight and bias, from the gradient dy with respect to y.

    Args:
        dy: an array of x's shape and of any of the four types.
        x, normalized_shape, weight, eps, axis, zero_centered: the arguments of `layer_norm`.
        mean, rstd: the statistics that `layer_norm` returned in the same arithmetic, float64. None: they are
            recomputed, with the same bits.
        dsum: an array of x's shape that is added to dx: a gradient that reaches x by another path. For
            `add_layer_norm`, it is the gradient of the sum; for two norms of one x, the dx of the other norm.
        accumulate: add to the dweight and dbias in `out`, which must be given.
        param_dtype: the type of dweight and dbias. None: float64 if any array is float64, else float32.
        out: (dx, dweight, dbias), the output arrays. If it or an element is None, a new array is made. dx may be dy or
            x.

    Returns:
        (dx, dweight, dbias): dx has x's shape and type, dweight and dbias have weight's shape. Without a weight, they
        have the normalised axes' shape, and dweight is the gradient for a weight of 1.

    >>> import numpy as np
    >>> x = np.array([[4, 2, 8], [1, 1, 1]], dtype=np.float32)
    >>> dy = np.array([[1, 0, -1], [2, 1, 0]], dtype=np.float32)
    >>> dx, dweight, dbias = layer_norm_backward(dy, x, 3, [1.5, 1, 0.5])
    >>> print(dx[0].round(4), dweight.round(4), dbias)
    [ 0.4295 -0.2864 -0.1432] [-0.2673  0.     -1.3363] [ 3.  1. -1.]
    """
    result: tuple[Result, Result, Result] = _core.norm_backward(
        False, dy, x, normalized_shape, weight, eps, axis, mean, rstd, dsum, zero_centered, accumulate, param_dtype, out
    )
    return result


def rms_norm_backward(
    dy: Array,
    x: Array,
    normalized_shape: Axes = None,
    weight: Array | None = None,
    eps: SupportsFloat | None = None,
    *,
    axis: Axes = None,
    rstd: Array | None = None,
    dsum: Array | None = None,
    zero_centered: bool = False,
    accumulate: bool = False,
    param_dtype: DTypeLike | None = None,
    out: tuple[Array | None, Array | None] | None = None,
) -> tuple[Result, Result]:
    """The gradients of `rms_norm` with respect to x and weight. The gradient of a bias is the sum of dy over rows.

    Args:
        dy, dsum, accumulate, param_dtype: as in `layer_norm_backward`.
        x, normalized_shape, weight, eps, axis, zero_centered: the arguments of `rms_norm`.
        rstd: the statistics that `rms_norm` returned in the same arithmetic, float64. None: they are recomputed, with
            the same bits.
        out: (dx, dweight), the output arrays. If it or an element is None, a new array is made. dx may be dy or x.

    Returns:
        (dx, dweight), as in `layer_norm_backward`.

    >>> import numpy as np
    >>> dx, dweight = rms_norm_backward(np.array([1.0, 0.0]), np.array([3.0, 4.0]), axis=0, eps=0)
    >>> print(dx.round(6), dweight.round(6))
    [ 0.181019 -0.135765] [0.848528 0.      ]
    """
    result: tuple[Result, Result] = _core.norm_backward(
        True, dy, x, normalized_shape, weight, eps, axis, None, rstd, dsum, zero_centered, accumulate, param_dtype, out
    )
    return result


def set_num_threads(n: SupportsIndex) -> None:
    """Sets how many threads one call may use: 1 by default, 0 for one per processor. Results have the same bits.

    The first call that is large enough starts the library's thread pool. A child of fork() works serially.

    Raises:
        TypeError: n is not an integer.
        ValueError: n is negative.

    >>> set_num_threads(2)
    >>> get_num_threads()
    2
    >>> set_num_threads(1)
    """
    _core.set_num_threads(n)


def get_num_threads() -> int:
    """Returns how many threads one call may use.

    >>> get_num_threads()
    1
    """
    return _core.get_num_threads()

"""The NumPy functions: their signatures, and what is told about them. All work, and all checks, are the library's.

An Array below is a NumPy array, or anything with DLPack or the buffer protocol (read in place), or a sequence of numbers.
"""

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from evenorm import _core

Array: TypeAlias = Any
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | np.ndarray[Any, np.dtype[np.integer[Any]]] | None
Result: TypeAlias = Any  # of the type of `out` where that is given, else a new array
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
    """Layer norm: y = (x - mean) / sqrt(var + eps) * weight + bias, over some axes together.

    Args:
        x: float64, float32, float16 or bfloat16 (ml_dtypes), of any shape and strides.
        normalized_shape: the sizes of the trailing axes to normalise together, one or several.
        weight, bias: of the normalised axes' shape, each of any of the four types; None: 1 and 0.
        eps: a number, finite and at least 0.
        axis: instead of normalized_shape, the numbers of any axes, one or several; negative ones count from the end.
        zero_centered: 1 + weight takes the weight's place.
        out: where y goes: of x's shape and any of the four types; may be x itself.
        return_stats: also return mean and rstd = 1 / sqrt(var + eps), float64, of the other axes' shape.

    Returns:
        y, or (y, mean, rstd). y is `out`, or a new array of x's shape and type. Within
        4 u (|weight| max|xhat| + |bias|) of real arithmetic (5 u where zero_centered; rms_norm: 3 u and 4 u), with
        u = 2**-24 (2**-53 where anything is float64): docs/numerics.md. Of the same bits whatever the
        batch, layout and number of threads.

    Raises:
        TypeError: a type that is none of the four, a sequence of anything but numbers, arguments of the wrong kind.
        ValueError: shapes that do not fit, an axis that x has not, an eps below 0, an output that may overlap an input.

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
    """RMS norm: y = x / sqrt(mean(x**2) + eps) * weight + bias, over some axes together.

    Args:
        eps: finite and at least 0; None: float32's epsilon, 2**-23, or float64's, 2**-52, for x of float64.
        x, normalized_shape, weight, bias, axis, zero_centered, out: as in `layer_norm`.
        return_stats: also return rstd = 1 / sqrt(mean(x**2) + eps), float64, of the other axes' shape.

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
    """The gradients of `layer_norm`: from dy, that of y, to those of x, weight and bias.

    Args:
        dy: of x's shape.
        x, normalized_shape, weight, eps, axis, zero_centered: what `layer_norm` was given.
        mean, rstd: what it returned with return_stats, float64; without them they are found again, with the same bits.
        dsum: of x's shape: a gradient that reaches x from elsewhere, added to dx. It is the gradient of the sum of
            `add_layer_norm`, or the dx of the other norm of `layer_norm_pair`.
        accumulate: add to the dweight and dbias of `out`, which are needed then.
        param_dtype: the type of dweight and dbias; None: float64 where anything is, else float32.
        out: (dx, dweight, dbias), where they go; None, or any of them None: new arrays. dx may be dy or x.

    Returns:
        (dx, dweight, dbias): dx of x's shape and type, the others of the normalised axes' shape; dweight as if the
        weight were 1 where there is none.

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
    """The gradients of `rms_norm`: from dy, that of y, to those of x and weight (a bias's is dy's sum over rows).

    Args:
        dy, x, normalized_shape, weight, eps, axis, rstd, dsum, zero_centered, accumulate, param_dtype: as in
            `layer_norm_backward`, and as `rms_norm` was given them.
        out: (dx, dweight), where they go; None, or either of them None: new arrays. dx may be dy or x.

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
    """How many threads one call may use: 1 at first; 0 is one per processor. Results have the same bits with any.

    The library's pool is started by the first call that is large enough. In a child of fork() work is done serially.

    Raises:
        TypeError: n is no integer.
        ValueError: n is below 0.

    >>> set_num_threads(2)
    >>> get_num_threads()
    2
    >>> set_num_threads(1)
    """
    _core.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads one call may use.

    >>> get_num_threads()
    1
    """
    return _core.get_num_threads()

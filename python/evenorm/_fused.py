"""NumPy functions that fuse a norm with neighbouring steps. The results have the bits of the separate steps."""

from typing import SupportsFloat

from evenorm import _core
from evenorm._norms import Array, Axes, NewArray, Result


def add_layer_norm(
    x: Array,
    residual: Array,
    normalized_shape: Axes = None,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: Axes = None,
    residual_scale: SupportsFloat = 1.0,
    zero_centered: bool = False,
    out: tuple[Array | None, Array | None] | None = None,
) -> tuple[Result, Result]:
    """Layer norm of sum = x + residual_scale * residual. Returns the norm and the sum.

    The sum is rounded once, to x's type, before it is normalised.

    Args:
        x, normalized_shape, weight, bias, eps, axis, zero_centered: as in `layer_norm`.
        residual: an array of x's shape and of any of the four types.
        residual_scale: a finite number.
        out: (y, sum), the output arrays. If it or an element is None, a new array is made. Each may be x or residual.
        The elements of a row must be contiguous in all arrays: the trailing axes of C-contiguous arrays.

    Returns:
        (y, sum), both of x's shape and type, or `out`'s arrays.

    Raises:
        TypeError, ValueError: as `layer_norm`; ValueError also if the elements of a row are not contiguous.

    >>> import numpy as np
    >>> x, residual = np.float32([[1, 2], [3, 5]]), np.float32([[3, 0], [1, 1]])
    >>> y, total = add_layer_norm(x, residual, 2, eps=0)
    >>> print(y.tolist(), total.tolist())
    [[1.0, -1.0], [-1.0, 1.0]] [[4.0, 2.0], [4.0, 6.0]]
    """
    result: tuple[Result, Result] = _core.add_norm(
        False, x, residual, normalized_shape, weight, bias, eps, axis, residual_scale, zero_centered, out
    )
    return result


def add_rms_norm(
    x: Array,
    residual: Array,
    normalized_shape: Axes = None,
    weight: Array | None = None,
    eps: SupportsFloat | None = None,
    *,
    bias: Array | None = None,
    axis: Axes = None,
    residual_scale: SupportsFloat = 1.0,
    zero_centered: bool = False,
    out: tuple[Array | None, Array | None] | None = None,
) -> tuple[Result, Result]:
    """RMS norm of sum = x + residual_scale * residual. Returns the norm and the sum, which is rounded once.

    Args:
        x, residual, residual_scale, out: as in `add_layer_norm`.
        normalized_shape, weight, eps, bias, axis, zero_centered: as in `rms_norm`.

    Returns:
        (y, sum), as in `add_layer_norm`.

    >>> import numpy as np
    >>> y, total = add_rms_norm(np.float64([[1, 3]]), np.float64([[2, 1]]), axis=1, eps=0)
    >>> print(y.round(4), total)
    [[0.8485 1.1314]] [[3. 4.]]
    """
    result: tuple[Result, Result] = _core.add_norm(
        True, x, residual, normalized_shape, weight, bias, eps, axis, residual_scale, zero_centered, out
    )
    return result


def layer_norm_int8(
    x: Array,
    normalized_shape: Axes = None,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: SupportsFloat = 1e-5,
    *,
    axis: Axes = None,
    scale: SupportsFloat | None = None,
    zero_centered: bool = False,
    out: Array | None = None,
) -> tuple[Result, NewArray]:
    """Layer norm quantised to int8: q = round(y / scale), from an unrounded y, so that y is about q * scale.

    Args:
        x, normalized_shape, weight, bias, eps, axis, zero_centered: as in `layer_norm`. The elements of a row of x must
            be contiguous: the trailing axes of a C-contiguous array.
        scale: a positive number, used for all rows; values out of range become -127 or 127. None: each row has its own
            scale, its largest |y| / 127. A row of zeros has scale 0. A row that is not finite has scale NaN and q = 0.
            If the largest |y| of a row is below 3.73e-37, q * scale is smaller than y.
        out: the output array for q, int8 of x's shape. None: a new array.

    Returns:
        (q, scale): q is int8 of x's shape. scale is float32: one for each row, in the shape of the axes that are not
        normalised, or the given scale.

    Raises:
        TypeError, ValueError: as `layer_norm`; ValueError also if the elements of a row are not contiguous.

    >>> import numpy as np
    >>> q, scale = layer_norm_int8(np.float32([[4, 2, 8], [1, 1, 1]]), 3, np.float32([1.5, 1, 0.5]))
    >>> print(q.tolist(), scale.round(6))
    [[-48, -127, 79], [0, 0, 0]] [0.008418 0.      ]
    """
    result: tuple[Result, NewArray] = _core.norm_int8(
        False, x, normalized_shape, weight, bias, eps, axis, scale, zero_centered, out
    )
    return result


def rms_norm_int8(
    x: Array,
    normalized_shape: Axes = None,
    weight: Array | None = None,
    eps: SupportsFloat | None = None,
    *,
    bias: Array | None = None,
    axis: Axes = None,
    scale: SupportsFloat | None = None,
    zero_centered: bool = False,
    out: Array | None = None,
) -> tuple[Result, NewArray]:
    """RMS norm quantised to int8: q = round(y / scale), from an unrounded y, so that y is about q * scale.

    Args:
        x, normalized_shape, weight, eps, bias, axis, zero_centered: as in `rms_norm`.
        scale, out: as in `layer_norm_int8`, whose requirement on rows of x holds too.

    Returns:
        (q, scale), as in `layer_norm_int8`.

    >>> import numpy as np
    >>> q, scale = rms_norm_int8(np.float32([[3, 4, -300]]), 3, scale=0.01)
    >>> print(q.tolist(), scale)
    [[2, 2, -127]] 0.01
    """
    result: tuple[Result, NewArray] = _core.norm_int8(
        True, x, normalized_shape, weight, bias, eps, axis, scale, zero_centered, out
    )
    return result

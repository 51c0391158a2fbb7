"""The halves of a norm whose normalised axis is split over processes: moments of each one's columns, joined."""

from typing import Any

from evenorm import _core, _moment_type
from evenorm._norms import Array, Axes, NewArray


def row_moments(
    x: Array, normalized_shape: Axes = None, *, axis: Axes = None, rms: bool = False, wide: bool = False
) -> NewArray:
    """Moments of x's rows in parts of 1024 columns: the first half of a norm over columns that several processes have.

    Each process finds those of its columns; all parts of a row, in the order of its columns, give `join` the moments of
    the whole; with them each process normalises its columns: `layer_norm(x, ..., moments=)`. The bits are those of the
    unsplit norm if each process has a multiple of 1024 columns, but the last; else the bounds are the same (docs/numerics.md
    has the rare exceptions).

    Args:
        x, normalized_shape, axis: as in `layer_norm`; this process's columns.
        rms: for `rms_norm`.
        wide: where anything else in the second half is float64, though x is not.

    Returns:
        An array of type `MOMENTS`, of the other axes' shape and one axis more, that of the parts.

    Raises:
        TypeError, ValueError: as `layer_norm`.

    >>> import numpy as np
    >>> x = np.arange(6144, dtype=np.float32).reshape(2, 3072)
    >>> left, right = x[:, :1024], x[:, 1024:]  # two processes
    >>> parts = np.concatenate([row_moments(left, axis=1), row_moments(right, axis=1)], axis=1)
    >>> from evenorm import layer_norm
    >>> y = layer_norm(right, axis=1, moments=join(parts))
    >>> np.array_equal(y, layer_norm(x, axis=1)[:, 1024:])
    True
    """
    return _moment_type.moments_from(_core.row_moments(rms, x, normalized_shape, axis, wide))


def join(parts: NewArray, *, rms: bool = False, wide: bool = False) -> NewArray:
    """The moments of rows from those of their parts, which are the last axis, in the order of the columns.

    Args:
        parts: of type `MOMENTS`, at least one a row; joined in one fixed order, whoever does it.
        rms, wide: as in `row_moments`; wide also where x was float64.

    Returns:
        An array of type `MOMENTS`, without the last axis.

    Raises:
        TypeError: parts is not of type `MOMENTS`.
        ValueError: there is no part.

    >>> import numpy as np
    >>> whole = join(row_moments(np.float32([[1, 2, 3, 4]]), axis=1))
    >>> print(whole["count"], whole["mean_hi"], whole["m2_hi"])
    [4.] [2.5] [5.]
    """
    numbers = _moment_type.numbers_of(parts, "parts")
    if numbers.ndim < 2:
        raise ValueError("parts has no axes, but its last axis should be that of the parts")
    result: Any = _core.join_moments(rms, numbers, wide)
    return _moment_type.moments_from(result)

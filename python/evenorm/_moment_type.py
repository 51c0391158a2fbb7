"""The type of moments: evenorm.hpp's Moments as a NumPy structure, and as the numbers that the library takes and gives."""

from typing import Any

import numpy as np

# Count, mean and sum of squares about the mean (RMS norm: mean 0, plain sum of squares) of some columns of one row, each
# of the latter two the sum of two numbers, of x * 2**-exponent, and their largest |x| where a row may be scaled by it:
# evenorm.hpp's Moments, so that its bytes can be sent.
_FIELDS = ("count", "mean_hi", "mean_lo", "m2_hi", "m2_lo")
MOMENTS = np.dtype([*((name, np.float64) for name in _FIELDS), ("exponent", np.int64), ("largest", np.float64)])


def numbers_of(moments: Any, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Moments as the library takes them: their numbers on a last axis, side by side."""
    if isinstance(moments, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, but it should be a plain one")
    array: np.ndarray[Any, np.dtype[Any]] = np.asarray(moments, order="C")
    if array.dtype != MOMENTS:
        raise TypeError(f"{name} has dtype {array.dtype}, but it should have evenorm.MOMENTS")
    return np.require(array.reshape((*array.shape, 1)).view(np.float64), requirements=("C", "A"))


def moments_from(numbers: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """What the library gives, as MOMENTS."""
    moments: np.ndarray[Any, np.dtype[Any]] = numbers.view(MOMENTS)[..., 0]
    return moments

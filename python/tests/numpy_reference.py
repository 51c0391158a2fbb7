"""The formulas in decimal arithmetic of 120 digits, plain two-pass loops, and the bounds of docs/numerics.md.

Knows nothing of evenorm. Rows are lists of Decimal; eps, zero-centred weights and residuals are the caller's to apply.
"""

from decimal import Decimal, getcontext

import numpy as np

getcontext().prec = 120
getcontext().Emin, getcontext().Emax = -99999, 99999

ZERO, ONE = Decimal(0), Decimal(1)
TWO = Decimal(2)
FRACTION_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
SMALLEST_EXPONENT = {"float64": -1022, "float32": -126, "float16": -14, "bfloat16": -126}


def exact(values):
    return [Decimal(float(value)) for value in values]


def unit(*arrays):
    """u of the arithmetic: 2^-53 where any array is float64."""
    return TWO**-53 if any(array is not None and array.dtype == np.float64 for array in arrays) else TWO**-24


def quantum(dtype):
    """The smallest subnormal number."""
    return TWO ** (SMALLEST_EXPONENT[dtype.name] - FRACTION_BITS[dtype.name])


def rounding(y, dtype):
    """The most that one rounding to the type may add."""
    return max(abs(y) * TWO ** -(FRACTION_BITS[dtype.name] + 1), quantum(dtype) / 2)


def limit(rms, zero_centered=False):
    """What is proved of y and dx, in u of their bounds: one for each rounding, and the errors of the statistics."""
    return (3 if rms else 5) + (1 if zero_centered else 0) + TWO**-5


class Row:
    """xhat of one row, and what its bounds are made of."""

    def __init__(self, x, eps, rms):
        n = Decimal(len(x))
        self.rms = rms
        self.mean = ZERO if rms else sum(x) / n
        deviations = [v - self.mean for v in x]
        self.variance = sum(d * d for d in deviations) / n
        denominator = self.variance + Decimal(eps)
        self.rstd = ZERO if denominator == 0 else ONE / denominator.sqrt()
        self.xhat = [d * self.rstd for d in deviations]
        self.largest_xhat = max(abs(v) for v in self.xhat)
        self.largest_x = max(abs(v) for v in x)

    def y(self, weight, bias):
        return [v * w + b for v, w, b in zip(self.xhat, weight, bias, strict=True)]

    def y_bound(self, u, weight, bias, zero_centered=False):
        """limit() u (|weight| max|xhat| + |bias|), and the quantum that is allowed among subnormal numbers."""
        eta = TWO**-149 if u == TWO**-24 else TWO**-1074
        allowed = limit(self.rms, zero_centered) * u
        return [allowed * (abs(w) * self.largest_xhat + abs(b)) + eta * (abs(w) + 1)
                for w, b in zip(weight, bias, strict=True)]  # fmt: skip

    def h(self, u, rms):
        e = ZERO if rms or self.variance == 0 else u * self.largest_x * self.rstd
        return [abs(v) + e for v in self.xhat]

    def dx(self, g, rms):
        n = Decimal(len(g))
        c1 = ZERO if rms else sum(g) / n
        c2 = sum(a * b for a, b in zip(g, self.xhat, strict=True)) / n
        return [(a - c1 - v * c2) * self.rstd for a, v in zip(g, self.xhat, strict=True)]

    def dx_bound(self, u, g, rms):
        n = Decimal(len(g))
        h = self.h(u, rms)
        mean_g = ZERO if rms else sum(abs(a) for a in g) / n
        mean_gh = sum(abs(a) * b for a, b in zip(g, h, strict=True)) / n
        return [limit(rms) * u * self.rstd * (abs(a) + mean_g + b * mean_gh) for a, b in zip(g, h, strict=True)]


def worst(actual, expected, allowed):
    """The largest error as a share of what is allowed."""
    shares = [ZERO]
    for value, right, bound in zip(exact(actual), expected, allowed, strict=True):
        error = abs(value - right)
        shares.append(error / bound if bound else (Decimal("Infinity") if error else ZERO))
    return max(shares)

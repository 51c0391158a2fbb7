"""The forward pass of layer norm and RMS norm, bit for bit, written from docs/numerics.md alone.

A second implementation in plain NumPy of what the library computes, for tests: slow, one row at a time, and with no
fused or vector instruction. "Section" and "item" below are those of docs/numerics.md, and so are the names.

>>> y, mean, rstd = norm_row(np.float32([4, 2, 8]), np.float32([1.5, 1, 0.5]), np.float32([0.5, 0, -0.5]))
>>> print(y.round(4), mean)
[ 0.0991 -1.069   0.1682] 4.666666666666667
"""

import collections
import math
import operator

import numpy as np

BLOCK, LANES = 1024, 16
LEAST_RUN = 16  # columns
F64, F32 = np.dtype(np.float64), np.dtype(np.float32)
NAN_BITS = {F64: np.uint64(0x7FF8000000000000), F32: np.uint32(0x7FC00000)}


# Operations that are rounded once.


def two_sum(a, b):
    """fl(a + b) and its error, of f64."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fma64_number(a, b, c):
    """a b + c of three f64, rounded once: the quotient of two integers."""
    a, b, c = float(a), float(b), float(c)
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    (na, da), (nb, db), (nc, dc) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    numerator = na * nb * dc + nc * da * db
    if numerator == 0:
        return a * b + c if na * nb == 0 else 0.0  # the sign of 0: of both terms, or + where they cancel
    try:
        return numerator / (da * db * dc)
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def sum_to_odd(a, b):
    """a + b of f64, rounded to odd: rounding it to f32 then gives what a single rounding would."""
    s, error = two_sum(a, b)
    error = np.where(np.isfinite(s), error, 0)
    bits = np.asarray(s).view(np.int64)
    away = np.where((error > 0) == (s > 0), 1, -1)  # from 0, or towards it
    return np.where((error != 0) & (bits % 2 == 0), bits + away, bits).view(F64)


def fma(a, b, c):
    """a b + c of numbers or arrays, all f32 or all f64, rounded once."""
    if a.dtype == F64:
        return np.float64(np.frompyfunc(fma64_number, 3, 1)(a, b, c))
    product = np.multiply(a, b, dtype=F64)  # 48 bits: exact
    return np.float32(sum_to_odd(product, np.float64(c)))


# Section 2: types.


def narrowed(y, to):
    """y, f32 or f64, rounded to the type `to`, with canonical NaN."""
    y = np.where(np.isnan(y), NAN_BITS[y.dtype].view(y.dtype), y)
    if y.dtype == F64 and to.itemsize == 2:  # by way of f32 rounded to odd
        near = y.astype(F32)
        towards = np.where(y > near, np.inf, -np.inf).astype(F32)
        even = near.view(np.uint32) % 2 == 0
        y = np.where((near != y) & even, np.nextafter(near, towards), near)
    return y.astype(to)


def parameter(a, n, neutral, arithmetic, plus_one=False):
    """gamma or beta in the arithmetic's type; `neutral` where it is absent."""
    a = np.full(n, neutral, arithmetic) if a is None else a.astype(arithmetic)
    return a + arithmetic.type(1) if plus_one else a


# Section 3: the partition of a row, and its statistics.


def joined(parts, join=operator.add):
    """Item 6: the binary tree over a list."""
    if len(parts) == 1:
        return parts[0]
    left = 1 << ((len(parts) - 1).bit_length() - 1)  # the largest power of two below len(parts)
    return join(joined(parts[:left], join), joined(parts[left:], join))


def over_runs(n, of_block, join=operator.add, run=1):
    """Items 1 and 6: of_block(columns) of the blocks of each run of n columns, joined. `run` columns share parameters."""
    run = run if run >= LEAST_RUN else n

    def of_run(begin, end):
        return joined([of_block(slice(i, min(i + BLOCK, end))) for i in range(begin, end, BLOCK)], join)

    return [of_run(i, i + run) for i in range(0, n, run)]


def over_row(n, of_block, join=operator.add, run=1):
    """Item 6: of_block(columns) of a row's blocks, joined."""
    return joined(over_runs(n, of_block, join, run), join)


def tree(lanes):
    """Item 3: the sum of lanes (..., 16), or of (..., 8), along the last axis."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def lines(a, columns=LANES):
    """Item 2: a (m,) as (lines, columns), +0 where there is no column."""
    padded = np.zeros(-(-len(a) // columns) * columns, a.dtype)
    padded[: len(a)] = a
    return padded.reshape(-1, columns)


Moments = collections.namedtuple("Moments", "m mean lo m2")  # f64; lo stays 0 in f32 arithmetic
Statistics = collections.namedtuple("Statistics", "mean lo var rstd")


def block_moments(x, rms, arithmetic):
    """Items 2 to 5 and 7: of a block x (m,), f64."""
    m, zero = len(x), np.float64(0)
    s, q = np.zeros((2, LANES))
    for line in lines(x):
        s, q = s + line, fma(line, line, q)
    s, q = tree(s), tree(q)
    if rms:
        return Moments(m, zero, zero, q)
    mean, m2 = s / m, q - s * (s * (1 / np.float64(m)))
    if not (m2 <= q / 2 if arithmetic == F64 else m2 < 2.0**-16 * q):
        return Moments(m, mean, zero, m2)
    s, q = np.zeros((2, LANES))
    for line in lines(x - mean):
        s, q = s + line, q + line * line
    s, q = tree(s), tree(q)
    m2 = q - s * (s / m)
    mean, lo = two_sum(mean, s / m)
    if arithmetic == F32:
        return Moments(m, mean, zero, np.maximum(m2, 0))
    return Moments(m, mean, zero, zero) if m2 < 2.0**-40 * q else Moments(m, mean, lo, m2)


def statistics(x, eps, rms, arithmetic, run=1):
    """Section 3: of a row x (n,), f64, of which `run` neighbouring columns share parameters."""

    def join(a, b):
        m, m2 = a.m + b.m, a.m2 + b.m2
        if rms:
            return Moments(m, a.mean, a.lo, m2)
        w, delta = np.float64(b.m) / m, (b.mean - a.mean) + (b.lo - a.lo)
        h, e = two_sum(a.mean, delta * w)
        mean, lo = two_sum(h, e + a.lo) if arithmetic == F64 else (h, a.lo)
        return Moments(m, mean, lo, m2 + (delta * delta) * (a.m * w))

    n, mean, lo, m2 = over_row(len(x), lambda columns: block_moments(x[columns], rms, arithmetic), join, run)
    var = m2 * (1 / np.float64(n))
    return Statistics(mean, lo, var, rstd_of(var + eps))


def rstd_of(z):
    """Item 8."""
    return 1 / np.sqrt(z) if z != 0 else np.float64(0)


# Section 4: the normalise step, and rare rows.


def normalised(x, of, gamma, beta):
    """y (n,) in x's type, which is that of the arithmetic."""
    k, r = x.dtype.type(of.mean), of.rstd
    if of.mean * of.mean <= 0.8125 * of.var:  # near zero
        k = x.dtype.type(0)
    if x.dtype == F32:
        r = np.float32(min(r, np.float64(np.finfo(F32).max)))
        c = np.float32(-((of.mean - np.float64(k)) * np.float64(r)))
    else:
        c = -(of.lo * r) if k else fma(-of.mean, r, -(of.lo * r))
    return fma(fma(x - k, r, c), gamma, beta)


def is_rare(of, eps, arithmetic):
    """Whether the row of these statistics is rare."""
    ms = of.mean * of.mean + of.var
    if arithmetic == F64:
        return not 2.0**-500 <= ms <= 2.0**500
    return eps > 2.0**251 or not (ms == 0 or 2.0**-120 <= ms <= 2.0**200)


def scaled(x, eps, rms, run=1):
    """Rare rows of f64 arithmetic: x', its statistics, k, the statistics that are returned, and if rstd is that of eps."""
    largest = np.abs(x).max()
    k = max(math.frexp(largest)[1] - 1, -1022) if largest > 0 else 0
    x, scaled_eps = np.ldexp(x, -k), np.ldexp(np.float64(eps), -2 * k)
    of = statistics(x, scaled_eps, rms, F64, run)
    is_small = scaled_eps > 2.0**500 and not np.isnan(of.var)  # the row is, beside eps
    of_eps = of.var == 0 or is_small
    rstd = rstd_of(np.float64(eps)) if of_eps else np.ldexp(of.rstd, -k)
    if is_small:
        of = of._replace(rstd=np.ldexp(rstd, k))
    return x, of, k, Statistics(np.ldexp(of.mean, k), np.ldexp(of.lo, k), of.var, rstd), of_eps


def row_statistics(x, eps, rms, arithmetic, run=1):
    """Sections 3 and 4: the statistics of a row x (n,), f64, that are returned, and whether it is rare."""
    of = statistics(x, eps, rms, arithmetic, run)
    rare = is_rare(of, eps, arithmetic)
    return scaled(x, eps, rms, run)[3] if rare and arithmetic == F64 else of, rare


def finite_or_nan(x):
    """x (n,) in f64, NaN as a whole if one element is not finite."""
    return x.astype(F64) if np.isfinite(x.astype(F64)).all() else np.full(len(x), np.nan)


def norm_row(x, gamma=None, beta=None, eps=1e-5, *, rms=False, zero_centered=False, to=None, run=1):
    """Sections 2 to 4: y (n,), in the type `to` (x's), mean and rstd, f64, of x (n,); gamma and beta (n,) or None.

    `run` neighbouring columns share an element of gamma and beta.
    """
    to = x.dtype if to is None else np.dtype(to)
    types = {to} | {array.dtype for array in (x, gamma, beta) if array is not None}
    arithmetic = F64 if F64 in types else F32
    with np.errstate(all="ignore"):
        x = finite_or_nan(x)
        of, rare = row_statistics(x, eps, rms, arithmetic, run)
        mean, rstd, steps = of.mean, of.rstd, F64 if rare else arithmetic
        if rare and arithmetic == F64:
            x, of, *_ = scaled(x, eps, rms, run)
        gamma = parameter(gamma, len(x), 1, arithmetic, zero_centered).astype(steps)
        y = normalised(x.astype(steps), of, gamma, parameter(beta, len(x), 0, steps))
        return narrowed(y, to), mean, rstd

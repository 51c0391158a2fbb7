"""The forward pass of layer norm and RMS norm, bit for bit, written from docs/numerics.md alone.

A second implementation in plain NumPy of what the library computes, for tests: slow, one row at a time, and with no
fused or vector instruction. "Section" and "item" below are those of docs/numerics.md. Names: n columns, m columns of a
block, `wide` numbers of the statistics: np.float64 for f32 arithmetic, `Pair` (double-double) for f64 arithmetic.

Fused multiply-adds are exact before their one rounding. In f32 the product is exact in f64, and the sum is rounded to
odd in f64, so that rounding it to f32 does what a single rounding would. In f64 product and sum are Python integers
over a power of two, and the quotient of two integers is rounded once, subnormals included.

>>> y, mean, rstd = norm_row(np.float32([4, 2, 8]), np.float32([1.5, 1, 0.5]), np.float32([0.5, 0, -0.5]))
>>> print(y.round(4), mean)
[ 0.0991 -1.069   0.1682] 4.666666666666667
"""

import dataclasses
import math

import numpy as np

BLOCK, LANES = 1024, 16
NAN_BITS = {8: 0x7FF8000000000000, 4: 0x7FC00000}


# Exact operations.


def two_sum(a, b):
    """fl(a + b) and its error, for numbers or arrays of f64."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def sum_to_odd(a, b):
    """a + b of f64, rounded to odd."""
    s, error = two_sum(a, b)
    error = np.where(np.isfinite(s), error, 0)
    bits = np.asarray(s).view(np.int64)
    away = np.where((error > 0) == (s > 0), 1, -1)  # from 0, or towards it
    return np.where((error != 0) & (bits % 2 == 0), bits + away, bits).view(np.float64)


def fma64_number(a, b, c):
    """a b + c of three f64, rounded once."""
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


def fma64(a, b, c):
    """a b + c of f64, element by element, rounded once; shapes as NumPy broadcasts them."""
    if np.ndim(a) == np.ndim(b) == np.ndim(c) == 0:
        return np.float64(fma64_number(a, b, c))
    return np.frompyfunc(fma64_number, 3, 1)(a, b, c).astype(np.float64)


def fma32(a, b, c):
    """a b + c of f32, element by element, rounded once: by way of f64 rounded to odd."""
    product = np.multiply(a, b, dtype=np.float64)  # 48 bits: exact
    return sum_to_odd(product, np.float64(c)).astype(np.float32)


def two_product(a, b):
    """fl(a b) and its error, of f64."""
    p = a * b
    return p, fma64(a, b, -p)


# The wide numbers.


@dataclasses.dataclass(frozen=True)
class Pair:
    """A double-double, of numbers or arrays of f64, with the operations at the end of section 3."""

    hi: np.float64
    lo: np.float64

    @classmethod
    def normalised(cls, a, b):
        """FastTwoSum."""
        s = a + b
        return cls(s, b - (s - a))

    def __getitem__(self, lanes):
        return Pair(self.hi[lanes], self.lo[lanes])

    def __neg__(self):
        return Pair(-self.hi, -self.lo)

    def __add__(self, other):
        s, e = two_sum(self.hi, other.hi)
        return Pair.normalised(s, e + (self.lo + other.lo))

    def __sub__(self, other):
        return self + -other

    def __mul__(self, other):
        p, e = two_product(self.hi, other.hi)
        return Pair.normalised(p, e + (self.hi * other.lo + self.lo * other.hi))

    def __truediv__(self, m):
        """By a number that is exact in f64."""
        hi = self.hi / m
        return Pair.normalised(hi, (fma64(-hi, np.float64(m), self.hi) + self.lo) / m)


def high(a):
    """A wide number's high part, where it has parts."""
    return a.hi if isinstance(a, Pair) else a


def scaled(a, k):
    """a 2^k, each part rounded once, in its type."""
    return Pair(np.ldexp(a.hi, k), np.ldexp(a.lo, k)) if isinstance(a, Pair) else np.ldexp(a, k)


def steps_of(x):
    """Item 2: x (m,) as (ceil(m / 16), 16), element c in lane c mod 16, +0 where there is no column."""
    padded = np.zeros(-(-len(x) // LANES) * LANES, x.dtype)
    padded[: len(x)] = x
    return padded.reshape(-1, LANES)


class Double:
    """f64 arithmetic: wide numbers are pairs."""

    type = np.dtype(np.float64)
    small, large = 2.0**-800, 2.0**960  # of section 4, scaled rows
    exponent = -1022
    fma = staticmethod(fma64)

    @staticmethod
    def wide(a):
        return Pair(np.float64(a), np.float64(0))

    @staticmethod
    def sums(x):
        """Item 2: x (steps, 16), f64 or a pair of such (item 5's d), to the lanes' sums s and q, pairs of (16,)."""
        x = x if isinstance(x, Pair) else Pair(x, np.zeros_like(x))
        twice = (x.hi + x.hi) * x.lo
        s_hi, s_lo, q_hi, q_lo = np.zeros((4, LANES))
        for i in range(len(twice)):
            s_hi, e = two_sum(s_hi, x.hi[i])
            s_lo = (s_lo + e) + x.lo[i]
            h = fma64(x.hi[i], x.hi[i], q_hi)
            a = h - q_hi
            e = (q_hi - (h - a)) + fma64(x.hi[i], x.hi[i], -a)
            q_hi, q_lo = h, (q_lo + e) + twice[i]
        return Pair(s_hi, s_lo), Pair(q_hi, q_lo)

    @staticmethod
    def first_sums(x):
        """Items 2 and 3, layer norm: x (steps, 16) to S and Q; Q is negative if an anchor did not hold."""
        largest = np.abs(x[0]).max()
        bits = np.float64(largest).view(np.uint64) & np.uint64(0x7FF0000000000000)
        power = bits.view(np.float64)
        a_s, a_q = power * 2.0**13, (power * power) * 2.0**15
        s_hi, q_hi = np.full(LANES, a_s), np.full(LANES, a_q)
        s_lo, q_lo = np.zeros((2, LANES))
        for row in x:
            h = s_hi + row
            s_hi, s_lo = h, s_lo + (row - (h - s_hi))
            h = fma64(row, row, q_hi)
            q_hi, q_lo = h, q_lo + fma64(row, row, -(h - q_hi))
        held = (q_hi <= 1.125 * a_q).all()
        s, q = (Pair(*two_sum(tree(hi), tree(lo))) for hi, lo in ((s_hi - a_s, s_lo), (q_hi - a_q, q_lo)))
        return s, q if held else -q

    @staticmethod
    def deviations(x, mean):
        """Item 5: d = x - K of x (m,), by steps."""
        a, b = two_sum(x, -mean.hi)
        return Pair(*map(steps_of, two_sum(a, b - mean.lo)))

    @staticmethod
    def square_of_sum(s, mean, m):
        """Item 4: what is taken off Q."""
        return s * mean

    @staticmethod
    def variance(m2, n):
        """Item 8."""
        return m2 / n

    @staticmethod
    def residual(z, r):
        """Item 8: 1 - z r^2."""
        w = Pair(*two_product(z.hi, r))
        return fma64(-w.hi, r, np.float64(1)) - (w.lo * r + (z.lo * r) * r)

    @staticmethod
    def rstd(z):
        """Item 8: a Newton step on 1 / sqrt."""
        if z.hi == 0:
            return np.float64(0)
        r = 1 / np.sqrt(z.hi)
        return fma64(r / 2, Double.residual(z, r), r)

    @staticmethod
    def offsets(mean, r, near):
        """Section 4: k and c."""
        if near:
            return np.float64(0), fma64(-mean.hi, r, -(mean.lo * r))
        return mean.hi, fma64(np.float64(-0.0), r, -(mean.lo * r))


class Single:
    """f32 arithmetic: wide numbers are f64."""

    type = np.dtype(np.float32)
    small, large = 2.0**-120, 2.0**200
    exponent = -126
    fma = staticmethod(fma32)
    wide = np.float64

    @staticmethod
    def sums(x):
        """Item 2: x (steps, 16), f32, or f64 (item 5's d), to the lanes' sums s and q, (16,)."""
        s, q = np.zeros((2, LANES))
        for row in x.astype(np.float64):
            s = s + row
            q = q + row * row
        return s, q

    @staticmethod
    def first_sums(x):
        """Items 2 and 3: x (steps, 16), f32, to S and Q."""
        return map(tree, Single.sums(x))

    @staticmethod
    def deviations(x, mean):
        """Item 5: d = x - K of x (m,), by steps."""
        return steps_of(x.astype(np.float64) - mean)

    @staticmethod
    def square_of_sum(s, mean, m):
        """Item 4: what is taken off Q."""
        return s * (s * (1 / np.float64(m)))

    @staticmethod
    def variance(m2, n):
        """Item 8."""
        return m2 * (1 / np.float64(n))

    @staticmethod
    def rstd(z):
        """Item 8."""
        return 1 / np.sqrt(z) if z != 0 else np.float64(0)

    @staticmethod
    def offsets(mean, r, near):
        """Section 4: k and c."""
        k = np.float32(0 if near else mean)
        return k, np.float32(-((mean - np.float64(k)) * np.float64(r)))


# Section 3: statistics. Moments are (m, mean, M2) of m columns, the last two wide.


def tree(lanes):
    """Item 3: lanes (16,) to one wide number."""
    for half in (8, 4, 2, 1):
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def second_pass(x, k, arithmetic):
    """Item 5: moments of a block x (m,), about its mean k as first found."""
    m = len(x)
    s, q = map(tree, arithmetic.sums(arithmetic.deviations(x, k)))
    m2 = q - s * (s / m)
    return m, k + s / m, arithmetic.wide(0) if high(m2) < 0 else m2


def block_moments(x, rms, arithmetic):
    """Items 4, 5 and 7: moments of x (m,), at most 1024 columns."""
    m = len(x)
    if rms:
        return m, arithmetic.wide(0), tree(arithmetic.sums(steps_of(x))[1])
    s, q = arithmetic.first_sums(steps_of(x))
    mean = s / m
    m2 = q - arithmetic.square_of_sum(s, mean, m)
    return second_pass(x, mean, arithmetic) if high(m2) < 2.0**-16 * high(q) else (m, mean, m2)


def join(a, b, rms, arithmetic):
    """Items 6 and 7: moments of a, on the left, and b."""
    (m_a, mean_a, m2_a), (m_b, mean_b, m2_b) = a, b
    m, m2 = m_a + m_b, m2_a + m2_b
    if rms:
        return m, mean_a, m2
    w, delta = arithmetic.wide(m_b) / m, mean_b - mean_a
    return m, mean_a + delta * w, m2 + (delta * delta) * (arithmetic.wide(m_a) * w)


def row_moments(blocks, rms, arithmetic):
    """Item 6: the tree over a list of blocks, each (m,)."""
    if len(blocks) == 1:
        return block_moments(blocks[0], rms, arithmetic)
    left = 1
    while 2 * left < len(blocks):
        left *= 2
    sides = (row_moments(side, rms, arithmetic) for side in (blocks[:left], blocks[left:]))
    return join(*sides, rms, arithmetic)


def statistics(x, rms, arithmetic):
    """Section 3: mean and variance, wide, of x (n,)."""
    _, mean, m2 = row_moments([x[i : i + BLOCK] for i in range(0, len(x), BLOCK)], rms, arithmetic)
    return mean, arithmetic.variance(m2, len(x))


# Section 4: the map.


def mapped(x, mean, rstd, near, gamma, beta, arithmetic):
    """Section 4, the two fused operations: y in the arithmetic's type, of x's shape (n,)."""
    r = np.minimum(rstd, np.finfo(np.float32).max).astype(np.float32) if arithmetic is Single else rstd
    k, c = arithmetic.offsets(mean, r, near)
    return arithmetic.fma(arithmetic.fma(x - k, r, c), gamma, beta)


def near_zero(mean, var):
    """Section 4: which of the two offsets."""
    return high(mean) * high(mean) <= 0.8125 * high(var)


def rstd_of(var, eps, arithmetic):
    """Item 8: from the variance, wide, and eps, f64."""
    return arithmetic.rstd(var + arithmetic.wide(eps))


def is_scaled(mean, var, eps, arithmetic):
    """Section 4, scaled rows: whether the row of this mean and variance is done anew."""
    ms = high(mean) * high(mean) + high(var)
    if arithmetic is Single and (eps > 2.0**251 or ms == 0):
        return eps > 2.0**251
    return not arithmetic.small <= ms <= arithmetic.large


def scaled_row(x, gamma, beta, eps, rms, arithmetic):
    """Section 4, scaled rows: y (n,), mean and rstd of a row that is done anew."""
    a, largest = arithmetic, np.abs(x).max()
    if not np.isfinite(x).all():
        return np.full_like(x, np.nan), np.float64(np.nan), np.float64(np.nan)
    rstd_0 = rstd_of(a.wide(0), eps, a)
    if largest == 0:
        zero = a.wide(0)
        return mapped(x, zero, rstd_0, True, gamma, beta, a), np.float64(0), rstd_0
    k = max(int(np.frexp(largest)[1]) - 1, a.exponent)
    mean, var = statistics(scaled(x, -k) if a is Double else x, rms, a)
    if a is Single:
        mean, var = scaled(mean, -k), scaled(var, -2 * k)
    near, less = near_zero(mean, var), 0
    scaled_eps = scaled(np.float64(eps), -2 * k)
    if np.isfinite(scaled_eps):
        rstd, exponent = rstd_of(var, scaled_eps, a), 0  # rstd' is rstd 2^exponent, not rounded before it is used
    else:
        rstd, exponent = rstd_0, k
    handed_mean, handed_rstd = scaled(high(mean), k), scaled(rstd, exponent - k)
    if scaled(rstd, exponent) < 2.0**a.exponent:
        less = 16
        mean = scaled(mean, -less)
    y = mapped(scaled(x, -(k + less)), mean, scaled(rstd, exponent + less), near, gamma, beta, a)
    return y, handed_mean, rstd_0 if high(var) == 0 else handed_rstd


# Section 2: types.


def rounded_to_odd(y):
    """Section 2, f64 to f32: where it does not fit, the one of its two neighbours whose last bit is 1."""
    near = y.astype(np.float32)
    back = near.astype(np.float64)
    towards = np.where(y > back, np.inf, -np.inf).astype(np.float32)
    even = near.view(np.uint32) % 2 == 0
    return np.where((back != y) & even, np.nextafter(near, towards), near)


def narrowed(y, to):
    """Section 2: y, f32 or f64, to the type `to`, with canonical NaN."""
    y = y.copy()
    y[np.isnan(y)] = np.array(NAN_BITS[y.itemsize], f"u{y.itemsize}").view(y.dtype)
    if y.itemsize == 8 and to.itemsize == 2:
        y = rounded_to_odd(y)
    return y.astype(to)


def norm_row(x, gamma=None, beta=None, eps=1e-5, *, rms=False, zero_centered=False, to=None):
    """Sections 2 to 4: y (n,), in the type `to` (x's), mean and rstd, f64, of x (n,); gamma and beta (n,) or None."""
    to = x.dtype if to is None else np.dtype(to)
    types = {to} | {array.dtype for array in (x, gamma, beta) if array is not None}
    arithmetic = Double if Double.type in types else Single
    with np.errstate(all="ignore"):
        x = x.astype(arithmetic.type)
        gamma = np.ones_like(x) if gamma is None else gamma.astype(x.dtype)
        gamma = gamma + x.dtype.type(1) if zero_centered else gamma
        beta = np.zeros_like(x) if beta is None else beta.astype(x.dtype)
        mean, var = statistics(x, rms, arithmetic)
        if is_scaled(mean, var, eps, arithmetic):
            y, mean, rstd = scaled_row(x, gamma, beta, eps, rms, arithmetic)
        else:
            rstd = rstd_of(var, eps, arithmetic)
            y = mapped(x, mean, rstd, near_zero(mean, var), gamma, beta, arithmetic)
            mean = high(mean)
        return narrowed(y, to), np.float64(mean), np.float64(rstd)

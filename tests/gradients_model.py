"""The backward pass of layer norm and RMS norm, bit for bit, written from docs/numerics.md alone.

A second implementation in plain NumPy of what the library computes, for tests; mean and variance, and the numbers that
are computed with, are those of numerics_model.py beside it. "Section", "item" and "step" below are those of
docs/numerics.md, and so are names, its section 7's. Arrays are (rows, n); what a row has one of is (rows, 1).

>>> x, dy = np.float32([[4, 2, 8], [1, 1, 1]]), np.float32([[1, 0, -1], [2, 1, 0]])
>>> dx, dgamma, dbeta = gradients(dy, x, np.float32([1.5, 1, 0.5]))
>>> print(dx[0].round(4), dgamma.round(4), dbeta)
[ 0.4295 -0.2864 -0.1432] [-0.2673  0.     -1.3363] [ 3.  1. -1.]
"""

import dataclasses

import numerics_model as forward
import numpy as np
from numerics_model import BLOCK, LANES, Pair, high, narrowed, sum_to_odd, two_sum

exact_fma64 = forward.fma64


# Exact operations.


def halves(a):
    """Dekker's: two numbers of at most 26 bits that add up to a."""
    t = 134217729 * a
    upper = t - (t - a)
    return upper, a - upper


def fma64(a, b, c):
    """a b + c of f64, rounded once: numerics_model's, but many at once where no part leaves the range.

    Boldo and Melquiond: with a b = p + e, p + (c + e) is rounded once if what two sums leave is rounded to odd.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    if a.size < 64:
        return exact_fma64(a, b, c)
    p, zero = a * b, (a == 0) | (b == 0)
    (a1, a2), (b1, b2) = halves(a), halves(b)
    e = a2 * b2 - (((p - a1 * b1) - a2 * b1) - a1 * b2)
    t, t_error = two_sum(c, e)
    s, s_error = two_sum(p, t)
    result = np.where(zero, p + c, s + sum_to_odd(t_error, s_error))
    size_p, size_c = np.abs(p), np.abs(c)
    usual = (size_p >= 2.0**-900) & (size_p < 2.0**1000) & (np.abs(a) < 2.0**990) & (np.abs(b) < 2.0**990)
    rest = ~(zero | (usual & ((size_c >= 2.0**-900) & (size_c < 2.0**1000) | (c == 0))))
    if rest.any():
        result[rest] = exact_fma64(a[rest], b[rest], c[rest])
    return result


forward.fma64 = fma64  # for its pairs


# The two arithmetics: what differs in section 7. Wide numbers are pairs, or f64.


class Double(forward.Double):
    """f64 arithmetic. What `fused` and `plus` return is not normalised."""

    fma = staticmethod(fma64)

    @staticmethod
    def all_wide(a):
        return Pair(a, np.zeros_like(a))

    @staticmethod
    def of_rows(numbers):
        return Pair(*(np.array(part).reshape(-1, 1) for part in ([v.hi for v in numbers], [v.lo for v in numbers])))

    @staticmethod
    def rstd(z):
        """With a low part, r/2 times the residual of item 8 for the rstd r that item 8 gives."""
        r = forward.Double.rstd(z)
        if z.hi == 0:
            return forward.Double.wide(r)
        return Pair(r, (r / 2) * forward.Double.residual(z, r))

    @staticmethod
    def centred(x, mean):
        """x - mean, as item 5's d."""
        a, b = two_sum(x, -mean.hi)
        return Pair(*two_sum(a, b - mean.lo))

    @staticmethod
    def fused(a, b, c):
        """a b + c for a b of f64."""
        p, e = forward.two_product(a.hi, b)
        s, t = two_sum(c.hi, p)
        return Pair(s, c.lo + (t + (e + a.lo * b)))

    @staticmethod
    def plus(c, a):
        s, t = two_sum(c.hi, a.hi)
        return Pair(s, (c.lo + t) + a.lo)

    @staticmethod
    def parts(mean):
        """mean_hi, and mean_lo as a wide number."""
        return mean.hi, Double.all_wide(mean.lo)


class Single(forward.Single):
    """f32 arithmetic."""

    all_wide = staticmethod(np.float64)
    fused = staticmethod(fma64)
    plus = staticmethod(np.add)

    @staticmethod
    def of_rows(numbers):
        return np.array(numbers, np.float64).reshape(-1, 1)

    @staticmethod
    def centred(x, mean):
        return x.astype(np.float64) - mean

    @staticmethod
    def parts(mean):
        """mean_hi and mean_lo."""
        mean_hi = mean.astype(np.float32)
        return mean_hi, mean - mean_hi


def chosen(which, a, b):
    """np.where of wide numbers."""
    if isinstance(a, Pair):
        return Pair(np.where(which, a.hi, b.hi), np.where(which, a.lo, b.lo))
    return np.where(which, a, b)


# Steps 1 to 3.


def row_statistics(x, eps, rms, arithmetic):
    """mean and rstd, wide, of x (n,), NaN where an element is not finite, and whether section 4 scales the row."""
    if not np.isfinite(x).all():
        return arithmetic.wide(np.nan), arithmetic.wide(np.nan), False
    mean, var = forward.statistics(x, rms, arithmetic)
    return mean, arithmetic.rstd(var + arithmetic.wide(eps)), forward.is_scaled(mean, var, eps, arithmetic)


def by_lanes(a):
    """Section 3, items 1 and 2: a (rows, n), wide, as (steps, 16, blocks, rows), +0 where there is no column."""
    if isinstance(a, Pair):
        return Pair(by_lanes(a.hi), by_lanes(a.lo))
    rows, n = a.shape
    m = min(BLOCK, -(-n // LANES) * LANES)
    padded = np.zeros((rows, -(-n // m) * m))
    padded[:, :n] = a
    return padded.reshape(rows, -1, m // LANES, LANES).transpose(2, 3, 1, 0)


def joined(parts):
    """Section 3, item 6: the tree over the first axis, adding."""
    n, left = len(high(parts)), 1
    if n == 1:
        return parts[0]
    while 2 * left < n:
        left *= 2
    return joined(parts[:left]) + joined(parts[left:])


def row_sums(dy, q, gamma, arithmetic):
    """Step 1: G and P."""
    dy, q, gamma = by_lanes(arithmetic.all_wide(dy)), by_lanes(q), by_lanes(gamma)
    g_sum = p_sum = arithmetic.all_wide(np.zeros(gamma.shape[1:]))
    for i in range(len(gamma)):
        g_sum, p_sum = arithmetic.fused(dy[i], gamma[i], g_sum), arithmetic.fused(q[i], gamma[i], p_sum)
    return (joined(forward.tree(lanes))[:, None] for lanes in (g_sum, p_sum))


def is_still(rstd, n, rms):
    """Step 2: whether dx is 0."""
    return (high(rstd) == 0) | (n == 1 and not rms)


def coefficients(g_sum, p_sum, mean, rstd, n, rms, arithmetic):
    """Step 2: c1 and c2, and k2, wide; then k2, rs and a."""
    c1 = arithmetic.all_wide(np.zeros_like(high(g_sum))) if rms else arithmetic.variance(g_sum, n)
    c2 = arithmetic.variance(p_sum, n) * rstd
    wide_k2 = (c2 * rstd) * rstd
    k2, rs = (high(a).astype(arithmetic.type) for a in (wide_k2, rstd))
    a = high(arithmetic.parts(mean)[1] * arithmetic.all_wide(k2) - c1 * rstd).astype(arithmetic.type)
    still = is_still(rstd, n, rms)
    return c1, c2, wide_k2, *(np.where(still, v.dtype.type(0), v) for v in (k2, rs, a))


# Step 4.


def anew_in_f64(dx, dy, x, gamma, mean, rstd, c1, c2, k2, still):
    """f32 arithmetic: dx where it has to be computed anew; k2 not rounded."""
    row = ~still & ((rstd < 2.0**-32) | (rstd > 2.0**32) | (c2 != 0) & (np.abs(k2) < 2.0**-126))
    g = np.multiply(dy, gamma, dtype=np.float64)
    anew = ((g - c1) - ((x - mean) * rstd) * c2) * rstd
    return np.where(row | ~np.isfinite(dx), anew.astype(np.float32), dx)


def in_double_double(dy, x, gamma, rstd, c2, p_sum, scaled):
    """f64 arithmetic: rows (rows, 1) that are done in double-double as a whole, and those whose dx alone is."""

    def outside(a, least, largest):
        return ((a != 0) & ~((np.abs(a) >= least) & (np.abs(a) <= largest))).any(axis=1, keepdims=True)

    whole = scaled | outside(rstd.hi, 2.0**-300, 2.0**300) | outside(dy, 2.0**-300, 2.0**300)
    whole |= outside(x, 2.0**-500, np.inf) | outside(gamma, 2.0**-100, 2.0**100)
    small = (np.abs(c2.hi) < 2.0**-960) | (np.abs((c2.hi * rstd.hi) * rstd.hi) < 2.0**-960)
    finite = np.isfinite(x).all(axis=1, keepdims=True)  # else all is NaN
    return whole & finite, ~whole & finite & small & (p_sum.hi != 0)


NONE = -(10**7)  # the exponent of 0


@dataclasses.dataclass(frozen=True)
class Apart:
    """Pairs times powers of two whose exponents are kept apart."""

    pair: Pair
    exponent: np.ndarray

    @classmethod
    def normalised(cls, pair, exponent=0, below=1):
        """With hi in [2^(below - 1), 2^below)."""
        k = np.frexp(pair.hi)[1].astype(np.int64) - below
        return cls(forward.scaled(pair, -k), np.where(pair.hi == 0, NONE, exponent + k))

    def __mul__(self, other):
        return Apart.normalised(self.pair * other.pair, self.exponent + other.exponent)

    def __add__(self, other):
        larger = np.maximum(self.exponent, other.exponent)
        return Apart(self.at(larger) + other.at(larger), larger)

    def __sub__(self, other):
        return self + Apart(-other.pair, other.exponent)

    def at(self, exponent):
        """The pair that belongs to another exponent."""
        return forward.scaled(self.pair, self.exponent - exponent)

    def sum(self):
        """Of each row, in the order of columns."""
        largest = self.exponent.max(axis=1)
        terms, total = self.at(largest[:, None]), Double.all_wide(np.zeros(largest.shape))
        for i in range(terms.hi.shape[1]):
            total = total + terms[:, i]
        return Apart(total[:, None], largest[:, None])


def scaled_statistics(x, eps, rms):
    """Of x (n,): k and x', 0 and x where section 4 does not scale the row; mean'; rstd and its exponent."""
    mean, rstd, scales = row_statistics(x, eps, rms, Double)
    if not scales:
        return 0, x, mean, rstd, 0
    rstd_0, largest = Double.rstd(Double.wide(eps)), np.abs(x).max()
    k = max(int(np.frexp(largest)[1]) - 1, Double.exponent) if largest > 0 else 0
    mean, var = forward.statistics(np.ldexp(x, -k), rms, Double)
    scaled_eps = np.ldexp(np.float64(eps), -2 * k)
    if var.hi == 0 or not np.isfinite(scaled_eps):
        return k, np.ldexp(x, -k), mean, rstd_0, 0
    return k, np.ldexp(x, -k), mean, Double.rstd(var + Double.wide(scaled_eps)), -k


def double_double_rows(dy, x, gamma, g_sum, p_sum, whole, eps, rms):
    """dx, rounded to f64, and what dgamma takes, pairs, of rows of finite x; G and P are step 1's where not `whole`."""
    n = x.shape[1]
    k, scaled_x, mean, rstd, exponent = zip(*(scaled_statistics(row, eps, rms) for row in x), strict=True)
    k, exponent, rstd = np.array(k)[:, None], np.array(exponent)[:, None], Double.of_rows(rstd)
    d = Double.all_wide(x) if rms else Double.centred(np.array(scaled_x), Double.of_rows(mean))
    d, r = Apart.normalised(d, 0 if rms else k), Apart(rstd, exponent)
    dy, gamma = (Apart.normalised(Double.all_wide(a)) for a in (dy, gamma))
    g, xhat = dy * gamma, d * r
    g_sum, p_sum = (
        Apart.normalised(chosen(whole, own.pair, other), np.where(whole, own.exponent, 0))
        for own, other in ((g.sum(), g_sum), ((g * d).sum(), p_sum))
    )
    c1 = Apart.normalised(g_sum.pair / n, g_sum.exponent)
    c2 = Apart.normalised((p_sum.pair / n) * rstd, p_sum.exponent + exponent)
    rest = g - (xhat * c2 if rms else c1 + xhat * c2)
    dx = (rest * Apart.normalised(rstd, exponent, below=0)).at(0).hi
    return np.where(is_still(rstd, n, rms) & np.isfinite(dx), 0.0, dx), (dy * xhat).at(0)


# Sums over rows.


def row_blocks(shape, storage, arithmetic):
    """Item 1: where the blocks begin, and where the last one ends; shape and storage: of x."""
    rows, n = shape
    m = (64 if storage.itemsize >= 4 else 128) * (2 if arithmetic is Double and storage != Double.type else 1)
    blocks = min(256, max(1, rows // m))
    if blocks == 1 and n <= BLOCK and rows * n >= 2**15:
        blocks = 2
    return np.arange(blocks + 1) * rows // blocks


def sums_over_rows(q, rs, whole, terms, dy, begin, arithmetic):
    """Items 2 and 3: dgamma and dbeta, wide, (n,); of rows `whole` dgamma takes terms as they are."""
    dy = arithmetic.all_wide(dy)
    dgamma = dbeta = arithmetic.all_wide(np.zeros((len(begin) - 1, high(dy).shape[1])))
    for i in range(np.diff(begin).max()):
        there = (begin[:-1] + i < begin[1:])[:, None]
        r = np.where(there[:, 0], begin[:-1] + i, 0)
        added = chosen(whole[r], arithmetic.plus(dgamma, terms[r]), arithmetic.fused(q[r], rs[r], dgamma))
        dgamma, dbeta = chosen(there, added, dgamma), chosen(there, arithmetic.plus(dbeta, dy[r]), dbeta)
    return joined(dgamma), joined(dbeta)


def finished(total, before, to, arithmetic):
    """Item 3: the sum, added to `before` where that is not None, in the type `to`."""
    total = total if before is None else total + arithmetic.all_wide(before.astype(np.float64))
    total = total.hi + total.lo if arithmetic is Double else total
    return narrowed(np.where(np.isfinite(total), total, np.nan), to)


def gradients_of_rows(dy, x, gamma, eps, rms, arithmetic):
    """dx in the arithmetic's type, and q, rs, `whole` and terms as sums_over_rows takes them."""
    mean, rstd, scaled = zip(*(row_statistics(row, eps, rms, arithmetic) for row in x), strict=True)
    mean, rstd, scaled = arithmetic.of_rows(mean), arithmetic.of_rows(rstd), np.array(scaled)[:, None]
    q = arithmetic.all_wide(dy) * arithmetic.centred(x, mean)
    g_sum, p_sum = row_sums(dy, q, gamma, arithmetic)
    c1, c2, wide_k2, k2, rs, a = coefficients(g_sum, p_sum, mean, rstd, x.shape[1], rms, arithmetic)
    dx = arithmetic.fma(dy * gamma, rs, arithmetic.fma(-(x - arithmetic.parts(mean)[0]), k2, a))
    whole, terms = np.zeros_like(scaled), arithmetic.all_wide(np.zeros(x.shape))
    finite = np.isfinite(high(c1)) & np.isfinite(high(c2))
    if arithmetic is Single:
        dx = anew_in_f64(dx, dy, x, gamma, mean, rstd, c1, c2, wide_k2, is_still(rstd, x.shape[1], rms))
    else:
        whole, alone = in_double_double(dy, x, gamma, rstd, c2, p_sum, scaled)
        r = np.flatnonzero(whole | alone)
        if len(r):
            dx[r], of_rows = double_double_rows(dy[r], x[r], gamma[r], g_sum[r], p_sum[r], whole[r], eps, rms)
            terms.hi[r], terms.lo[r] = of_rows.hi, of_rows.lo
            finite[r] = np.isfinite(dy[r] + gamma[r] * 0).all(axis=1, keepdims=True)
    return np.where(finite, dx, dx.dtype.type(np.nan)), q, high(rstd), whole, terms


def gradients(
    dy, x, gamma=None, eps=1e-5, *, rms=False, zero_centered=False, to=None, params=None, before=(None, None)
):
    """Sections 2 and 7: dx (rows, n) in the type `to` (x's), dgamma and dbeta (n,) in the types `params`.

    dy and x are (rows, n), gamma (n,) or None; without `params` it is the arithmetic's type, twice; `before` is what
    dgamma and dbeta are added to, (n,), or None.
    """
    to = x.dtype if to is None else np.dtype(to)
    types = {to} | {array.dtype for array in (dy, x, gamma) if array is not None}
    arithmetic = Double if Double.type in types else Single
    params = [np.dtype(arithmetic.type if params is None else t) for t in params or [None] * 2]
    with np.errstate(all="ignore"):
        begin, storage = row_blocks(x.shape, x.dtype, arithmetic), arithmetic.type
        dy, x = dy.astype(storage), x.astype(storage)
        gamma = np.ones(x.shape[1], storage) if gamma is None else gamma.astype(storage)
        gamma = np.broadcast_to(gamma + storage.type(1) if zero_centered else gamma, x.shape)
        sums = [arithmetic.all_wide(np.zeros(x.shape[1]))] * 2  # of no rows
        if len(x):
            x, *of_rows = gradients_of_rows(dy, x, gamma, eps, rms, arithmetic)
            sums = sums_over_rows(*of_rows, dy, begin, arithmetic)
        dgamma, dbeta = (finished(*each, arithmetic) for each in zip(sums, before, params, strict=True))
        return narrowed(x, to), dgamma, dbeta

"""The gradients of layer norm and RMS norm, bit for bit, written from docs/numerics.md alone.

A second implementation in NumPy of what the library computes, for tests. The statistics and the number types are those
of numerics_model.py. "Section", "item" and "step" are those of docs/numerics.md, and the names are those of its section
7. Arrays are (rows, n); an array of one number a row is (rows, 1).

>>> x, dy = np.float32([[4, 2, 8], [1, 1, 1]]), np.float32([[1, 0, -1], [2, 1, 0]])
>>> dx, dgamma, dbeta = gradients(dy, x, np.float32([1.5, 1, 0.5]))
>>> print(dx[0].round(4), dgamma.round(4), dbeta)
[ 0.4295 -0.2864 -0.1432] [-0.2673  0.     -1.3363] [ 3.  1. -1.]
"""

import collections
import dataclasses
import math

import numerics_model as forward
import numpy as np
from numerics_model import BLOCK, LANES, Pair, high, narrowed, sum_to_odd, two_product, two_sum

CHAIN = 4 * LANES  # columns
NONE = -(10**7)  # the exponent of a double-double that is 0
exact_fma64 = forward.fma64


def fma64(a, b, c):
    """a b + c of f64, rounded once: numerics_model's, but many at once where no part leaves the range.

    Boldo and Melquiond: with a b = p + e, p + (c + e) is rounded once if what two sums leave is rounded to odd.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    if a.size < 64:
        return exact_fma64(a, b, c)
    p, zero = a * b, (a == 0) | (b == 0)
    a1, b1 = ((134217729 * v) - (134217729 * v - v) for v in (a, b))  # Dekker's product
    a2, b2 = a - a1, b - b1
    e = a2 * b2 - (((p - a1 * b1) - a2 * b1) - a1 * b2)
    t, t_error = two_sum(c, e)
    s, s_error = two_sum(p, t)
    result = np.where(zero, p + c, s + sum_to_odd(t_error, s_error))
    p_fits, c_fits = ((np.abs(v) >= 2.0**-900) & (np.abs(v) < 2.0**1000) for v in (p, c))
    rest = ~(zero | p_fits & (c_fits | (c == 0)) & (np.abs(a) < 2.0**990) & (np.abs(b) < 2.0**990))
    result[rest] = exact_fma64(a[rest], b[rest], c[rest])
    return result


forward.fma64 = fma64  # for its pairs


class Quad:
    """A finite binary128 number m 2^e. No number here leaves binary128's range. A 0 has e = 0, or -1 if it is -0."""

    __slots__ = ("e", "m")

    def __init__(self, m, e):
        over = m.bit_length() - 113
        if over > 0:  # to nearest even
            m, e = (m + (1 << (over - 1)) - 1 + (m >> over & 1)) >> over, e + over
        self.m, self.e = m, e

    @classmethod
    def of(cls, a):
        """Of an f64; 0 stands for a number that is not finite."""
        if a == 0 or not math.isfinite(a):
            return cls(0, -1 if a == 0 and math.copysign(1, a) < 0 else 0)
        fraction, e = math.frexp(a)
        return cls(int(fraction * 2.0**53), e - 53)

    def times_power(self, k):
        return Quad(self.m, self.e + int(k)) if self.m else self

    def __neg__(self):
        return Quad(-self.m, self.e if self.m else -1 - self.e)

    def __add__(self, other):
        if self.m == 0 or other.m == 0:
            return other if other.m else self if self.m else Quad(0, max(self.e, other.e))
        e = min(self.e, other.e)
        m = (self.m << (self.e - e)) + (other.m << (other.e - e))
        return Quad(m, e if m else 0)

    def __sub__(self, other):
        return self + -other

    def __mul__(self, other):
        m = self.m * other.m
        signs = [(a.m or a.e) < 0 for a in (self, other)]
        return Quad(m, self.e + other.e if m else -(signs[0] != signs[1]))

    def __truediv__(self, n):
        """By a positive integer."""
        quotient, rest = divmod(self.m << 256, n)
        return Quad(2 * quotient + (rest != 0), self.e - 257) if self.m else self

    def __float__(self):
        try:
            return float(self.m << self.e) if self.e >= 0 else self.m / (1 << -self.e) if self.m else -0.0
        except OverflowError:
            return math.copysign(math.inf, self.m)


times_power = np.frompyfunc(Quad.times_power, 2, 1)


def as_quads(a):
    """f64 numbers, or pairs (each sum rounded once), as an array of Quad."""
    return as_quads(a.hi) + as_quads(a.lo) if isinstance(a, Pair) else np.frompyfunc(Quad.of, 1, 1)(a)


def as_doubles(a):
    """An array of Quad, rounded to f64."""
    return np.float64(np.frompyfunc(float, 1, 1)(a))


@dataclasses.dataclass(frozen=True)
class Apart:
    """Item 5: a double-double with an exponent of its own, pair 2^exponent."""

    pair: Pair
    exponent: int

    @classmethod
    def of(cls, a):
        """A Quad, rounded."""
        exponent = math.frexp(a.m)[1] - 1 + a.e if a.m else NONE  # of a as f64, so that hi is not 2
        return cls(Double.parts(a.times_power(-exponent)), exponent)

    def __add__(self, other):
        larger = max(a.exponent if a.pair.hi else NONE for a in (self, other))
        for exponent in (larger, larger + 64):
            a, b = (forward.scaled(each.pair, each.exponent - exponent) for each in (self, other))
            if np.isfinite((a + b).hi):
                break
        return Apart(a + b, exponent)

    def scaled(self):
        """A pair (1,)."""
        return forward.scaled(Pair(np.array([self.pair.hi]), np.array([self.pair.lo])), self.exponent)

    def quad(self):
        """Rounded to binary128."""
        return as_quads(self.pair).times_power(self.exponent)


# The two arithmetics: what differs in section 7. Wide numbers are pairs, or f64. Item 5's numbers, "exact" here, are
# Quad, or f64.


Statistics = collections.namedtuple("Statistics", "rstd k lo scaled exact_mean exact_rstd exact_k")  # each (rows, 1)


class Double(forward.Double):
    """f64 arithmetic."""

    fma = staticmethod(fma64)
    least_rstd, largest_rstd, least_c2 = 2.0**-300, 2.0**300, 2.0**-960
    exact, rounded, block_sum = staticmethod(as_quads), staticmethod(as_doubles), staticmethod(Apart.of)
    all_wide = staticmethod(lambda a: Pair(a, np.zeros_like(a)))
    product = staticmethod(lambda a, b: Pair(*two_product(a, b)))
    with_exponents = staticmethod(lambda a: np.frompyfunc(lambda *pair: Apart(Pair(*pair), 0), 2, 1)(a.hi, a.lo))

    @staticmethod
    def plus(s, a):
        """s + a of steps 1 and 2, not normalised; a is f64, or the pair of a wide row's term."""
        a = a if isinstance(a, Pair) else Double.all_wide(a)
        hi, e = two_sum(s.hi, a.hi)
        return Pair(hi, (s.lo + e) + a.lo)

    @staticmethod
    def parts(terms):
        """Exact numbers as wide ones."""
        hi = as_doubles(terms)
        return Pair(hi, as_doubles(terms - as_quads(hi)))

    @staticmethod
    def row_sums(sums):
        """Of Apart (rows, 1): the pairs, and where the exponent is not 0. A sum of 0 has none."""
        parts = ((a.pair.hi, a.pair.lo, a.pair.hi != 0 and a.exponent != 0) for a in sums[:, 0])
        hi, lo, apart = map(np.vstack, zip(*parts, strict=True))
        return Pair(hi, lo), apart

    @staticmethod
    def rstd(z):
        """Item 8's rstd, with a low part."""
        r = forward.Double.rstd(z)
        return forward.Double.wide(r) if z.hi == 0 else Pair(r, (r / 2) * forward.Double.residual(z, r))

    @staticmethod
    def row_statistics(x, eps, rms):
        """Of x (n,): mean' and rstd', pairs, the powers of two they are to be scaled by, and whether x is scaled."""
        if not np.isfinite(x).all():
            return Double.wide(np.nan), Double.wide(np.nan), 0, 0, True
        mean, var = forward.statistics(x, rms, Double)
        if not forward.is_scaled(mean, var, eps, Double):
            return mean, Double.rstd(var + Double.wide(eps)), 0, 0, False
        largest = np.abs(x).max()
        k = max(int(np.frexp(largest)[1]) - 1, Double.exponent) if largest > 0 else 0
        mean, var = forward.statistics(np.ldexp(x, -k), rms, Double)
        scaled_eps = np.ldexp(np.float64(eps), -2 * k)
        if var.hi == 0 or not np.isfinite(scaled_eps):
            return mean, Double.rstd(Double.wide(eps)), k, 0, True
        return mean, Double.rstd(var + Double.wide(scaled_eps)), k, -k, True

    @staticmethod
    def statistics(x, eps, rms):
        *pairs, k, of_rstd, scaled = zip(*(Double.row_statistics(row, eps, rms) for row in x), strict=True)
        mean, rstd = (Pair(*np.array([(a.hi, a.lo) for a in each]).T[:, :, None]) for each in pairs)
        k, of_rstd, scaled = (np.array(each)[:, None] for each in (k, of_rstd, scaled))
        if x.shape[1] == 1 and not rms:
            rstd = Double.all_wide(np.zeros_like(rstd.hi))
        exact = [times_power(as_quads(a), power) for a, power in ((mean, k), (rstd, of_rstd), (mean.hi, k))]
        mean = forward.scaled(mean, k)
        return Statistics(forward.scaled(rstd, of_rstd), mean.hi, mean.lo, scaled, *exact)

    @staticmethod
    def minus_p(lo, g_sum, d_sum):
        """Step 2: -P."""
        p, q = two_product(g_sum.hi, lo)
        return d_sum + Pair.normalised(p, q + g_sum.lo * lo)


class Single(forward.Single):
    """f32 arithmetic."""

    all_wide = exact = parts = with_exponents = block_sum = staticmethod(np.float64)
    rounded, row_sums = staticmethod(np.float32), staticmethod(lambda sums: (sums, False))
    plus, product, minus_p = staticmethod(np.add), staticmethod(np.multiply), staticmethod(fma64)
    least_rstd, largest_rstd, least_c2 = 2.0**-32, 2.0**32, 2.0**-126

    @staticmethod
    def statistics(x, eps, rms):
        mean, rstd = np.array([forward.norm_row(row, eps=eps, rms=rms)[1:] for row in x]).T[:, :, None]
        rstd, k = np.zeros_like(rstd) if x.shape[1] == 1 and not rms else rstd, mean.astype(np.float32)
        return Statistics(rstd, k, mean - k, np.zeros(k.shape, bool), mean, rstd, np.float64(k))


def chosen(which, a, b):
    """np.where of wide numbers."""
    if isinstance(a, Pair):
        return Pair(np.where(which, a.hi, b.hi), np.where(which, a.lo, b.lo))
    return np.where(which, a, b)


def joined(parts):
    """Section 3, item 6: the tree over a list, adding."""
    if len(parts) == 1:
        return parts[0]
    left = 1 << ((len(parts) - 1).bit_length() - 1)  # the largest power of two below len(parts)
    return joined(parts[:left]) + joined(parts[left:])


# Steps 1 to 5.


def chains(a):
    """Step 1: a (rows, n) as (chains, 4, rows, blocks, 16), +0 where there is no column. No 0 changes a sum."""
    rows, n = a.shape
    m = min(BLOCK, -(-n // CHAIN) * CHAIN)
    padded = np.zeros((rows, -(-n // m) * m), a.dtype)
    padded[:, :n] = a
    return padded.reshape(rows, -1, m // CHAIN, 4, LANES).transpose(2, 3, 0, 1, 4)


def block_sums(g, d, arithmetic):
    """Step 1: G and D of each block, (rows, blocks), wide."""
    g, d = chains(g), chains(d)
    sums = [arithmetic.all_wide(np.zeros((*g.shape[2:4], 8)))] * 2
    for (g0, g1, g2, g3), (d0, d1, d2, d3) in zip(g, d, strict=True):
        products = arithmetic.fma(g1, d1, g0 * d0) + arithmetic.fma(g3, d3, g2 * d2)
        of_chain = ((g0 + g1) + g2) + g3, products
        sums = [arithmetic.plus(s, a[..., :8] + a[..., 8:]) for s, a in zip(sums, of_chain, strict=True)]
    for half in (4, 2, 1):
        sums = [s[..., :half] + s[..., half:] for s in sums]
    return [s[..., 0] for s in sums]


class Rows:
    """The rows of a problem: dx, in the arithmetic's type, and what dgamma and dbeta take.

    of: the statistics. n: what c1 and c2 are divided by. weighed: (G, D) by runs, not finite where they are not used.
    least: of |D| of a block.
    """

    def __init__(self, dy, x, gamma, of, n, rms, arithmetic, weighed=None, least=0):
        self.dy, self.x, self.gamma, self.rms, self.arithmetic = dy, x, gamma, rms, arithmetic
        self.of, self.n = of, n
        r, rstd = of.rstd, high(of.rstd)
        rs = np.minimum(rstd, np.finfo(x.dtype).max).astype(x.dtype)
        g, d = dy * gamma, of.k - x
        sums = block_sums(g, d, arithmetic)
        self.wide = of.scaled | (rstd != 0) & ~((rstd >= arithmetic.least_rstd) & (rstd <= arithmetic.largest_rstd))
        anew = self.wide | ~(np.isfinite(high(sums[0])) & np.isfinite(high(sums[1])))  # (rows, blocks)
        anew |= np.abs(high(sums[1])) < least
        sums = [arithmetic.with_exponents(a) for a in sums]
        for at in map(tuple, np.argwhere(anew)):
            sums[0][at], sums[1][at] = map(arithmetic.block_sum, self.block_anew(*at))
        self.sums = [joined([a[:, b, None] for b in range(anew.shape[1])]) for a in sums]
        if weighed:
            used = ~self.wide & np.isfinite(high(weighed[0])) & np.isfinite(high(weighed[1]))
            by_runs = (arithmetic.with_exponents(a) for a in weighed)
            self.sums = [np.where(used, a, b) for a, b in zip(by_runs, self.sums, strict=True)]
        (g_sum, g_apart), (d_sum, d_apart) = map(arithmetic.row_sums, self.sums)
        nothing = arithmetic.all_wide(np.zeros_like(high(g_sum)))
        c1 = nothing if rms else arithmetic.variance(g_sum, n)
        self.c2 = c2 = arithmetic.variance(-arithmetic.minus_p(of.lo, g_sum, d_sum), n) * r
        wide_k2 = (c2 * r) * r
        k2, minus_k1 = high(wide_k2), high(arithmetic.product(of.lo, high(wide_k2)) + (nothing - c1 * r))
        k2, a, o = (each.astype(x.dtype) for each in (k2, minus_k1, -(of.lo * rs)))
        dx, self.xhat = arithmetic.fma(g, rs, arithmetic.fma(d, k2, a)), arithmetic.fma(-d, rs, o)
        usual = [np.isfinite(a) & (np.abs(a) >= arithmetic.least_c2) for a in map(high, (c2, wide_k2))]
        wide = self.wide | g_apart & (not rms) | d_apart
        self.wide_c2 = wide
        wide = wide | ~np.isfinite(high(c1)) | (high(c2) != 0) & ~(usual[0] & usual[1])
        finite = (np.isfinite(x) & np.isfinite(dy) & np.isfinite(gamma)).all(axis=1, keepdims=True)
        self.dx = np.where(finite, dx, x.dtype.type(np.nan))
        for i in np.flatnonzero((wide | ~np.isfinite(dx)).any(axis=1) & finite[:, 0]):
            self.wide_dx(i, wide[i, 0], c1, c2)

    def exact(self, i, at):
        """dy, x and gamma of columns `at` of row i."""
        return (self.arithmetic.exact(a[i, at]) for a in (self.dy, self.x, self.gamma))

    def block_anew(self, i, b):
        """Item 5: G and D, exact, of block b of row i."""
        dy, x, gamma = self.exact(i, slice(b * BLOCK, (b + 1) * BLOCK))
        g = dy * gamma
        return [self.arithmetic.exact(0.0) + np.add.accumulate(a)[-1] for a in (g, g * (self.of.exact_k[i] - x))]

    def wide_dx(self, i, whole, c1, c2):
        """Item 5: the whole row i of dx, or its numbers that are not finite. Of finite numbers c1 and c2 are finite."""
        a, at = self.arithmetic, whole | ~np.isfinite(self.dx[i])
        (dy, x, gamma), (mean, rstd, _) = self.exact(i, at), (each[i, 0] for each in self.of[-3:])
        if whole and a is Double:
            c1, c2 = (c.quad() for c in self.wide_means(i))
        else:
            c1, c2 = (a.exact(c[i, 0]) for c in (c1, c2))
        self.dx[i, at] = a.rounded(((dy * gamma - c1) - ((x - mean) * rstd) * c2) * rstd + a.exact(0.0))

    def wide_means(self, i):
        """Item 5: c1 and c2 of row i in f64 arithmetic, with exponents."""
        (g, d), (mean, rstd, k) = (each[i, 0].quad() for each in self.sums), (each[i, 0] for each in self.of[-3:])
        return (
            Apart.of(Quad(0, 0) if self.rms else g / self.n),
            Apart.of((-(d + (mean - k) * g) / self.n) * rstd),
        )

    def sums_of_run(self, i, whole_is_finite):
        """ "Sums over rows", item 5: what row i, which is a run of a whole row, adds to dgamma and dbeta, wide, (1,)."""
        a, dgamma, dbeta = self.arithmetic, self.c2[i], self.sums[0][i]
        if a is Double:
            dgamma = self.wide_means(i)[1].scaled() if self.wide_c2[i, 0] else dgamma
            dbeta = dbeta[0].scaled()
        fine = np.isfinite(self.dy[i]).all()
        nan = a.all_wide(np.full(1, np.nan))
        sums = dgamma if fine and whole_is_finite else nan, dbeta if fine else nan
        return [Pair(s.hi + 0.0, s.lo) if a is Double else s + 0.0 for s in sums]  # not -0

    def terms(self, i):
        """Item 5: dgamma's and dbeta's terms of row i, wide, (n,)."""
        (dy, x, _), a = self.exact(i, slice(None)), self.arithmetic
        term = a.parts(dy * ((x - self.of.exact_mean[i]) * self.of.exact_rstd[i]))
        fine = np.isfinite(self.dy[i]) & np.isfinite(self.x[i]).all()
        return chosen(fine, term, a.all_wide(fine * np.nan)), a.all_wide(np.float64(self.dy[i]))


# Sums over rows.


def row_blocks(shape, storage, arithmetic):
    """Item 1: where the row blocks begin, and where the last one ends; shape and storage: of x."""
    rows, n = shape
    m = (64 if storage.itemsize >= 4 else 128) * (2 if arithmetic is Double and storage != Double.type else 1)
    blocks = min(256, max(1, rows // m))
    blocks = 2 if blocks == 1 and n <= BLOCK and rows * n >= 2**15 else blocks
    return [b * rows // blocks for b in range(blocks + 1)]


def without_nan(total):
    """A low part that is NaN, because TwoSum left the range on its way to a sum that does not, counts as 0."""
    return Pair(total.hi, np.where(np.isnan(total.lo), 0, total.lo)) if isinstance(total, Pair) else total


def row_block_sums(rows, begin, end):
    """Items 2 and 3: dgamma and dbeta of rows begin to end, wide, (n,)."""
    plus, fma, dy, xhat = rows.arithmetic.plus, rows.arithmetic.fma, rows.dy, rows.xhat
    zero = rows.arithmetic.all_wide(np.zeros(dy.shape[1]))
    sums = [zero, zero]
    for first in range(begin, end, 4):
        chain = None
        for i in range(first, min(first + 4, end)):
            if rows.wide[i, 0]:
                sums = [without_nan(plus(s, term)) for s, term in zip(sums, rows.terms(i), strict=True)]
            else:
                chain = (fma(dy[i], xhat[i], chain[0]), chain[1] + dy[i]) if chain else (dy[i] * xhat[i], dy[i])
        sums = [plus(s, a) for s, a in zip(sums, chain, strict=True)] if chain else sums
    for which, total in enumerate(sums):
        again, at = zero, ~np.isfinite(high(total) + 0 * getattr(total, "lo", 0))
        for i in range(begin, end if at.any() else begin):
            again = without_nan(plus(again, rows.terms(i)[which]))
        sums[which] = chosen(at, again, total)
    return sums


def parts_of_runs(dy, x, run, of, rms, arithmetic):
    """Item 5: the rows of each run alone, with gamma = 1."""
    parts = ((dy[:, c : c + run], x[:, c : c + run]) for c in range(0, x.shape[1], run))
    least = 2.0**-64 if arithmetic is Single else 2.0**-960
    return [Rows(*part, np.ones_like(part[0]), of, 1, rms, arithmetic, least=least) for part in parts]


def weighed_sums(parts, gamma, arithmetic):
    """Item 5: G and D of each row, (rows, 1), NaN where a run's have exponents."""
    sums = [arithmetic.all_wide(np.zeros((len(parts[0].x), 1)))] * 2
    for part, weight in zip(parts, gamma, strict=True):
        of_part, apart = zip(*map(arithmetic.row_sums, part.sums), strict=True)
        weight = arithmetic.all_wide(np.where(apart[0] | apart[1], np.nan, np.float64(weight)))
        sums = [s + a * weight for s, a in zip(sums, of_part, strict=True)]
    return sums


def run_sums(parts, x, arithmetic):
    """Item 5: dgamma and dbeta of each row, wide, (n / run,)."""

    def side_by_side(sums):
        if arithmetic is Single:
            return np.concatenate(sums)
        return Pair(np.concatenate([s.hi for s in sums]), np.concatenate([s.lo for s in sums]))

    of_rows = ([part.sums_of_run(i, np.isfinite(row).all()) for part in parts] for i, row in enumerate(x))
    return [[side_by_side(sums) for sums in zip(*of_row, strict=True)] for of_row in of_rows]


def shared_sums(total, run, arithmetic):
    """Item 5: the sums of columns, (n,), to those of runs, (n / run,)."""

    def summed(total):
        steps = -(-run // LANES)

        def padded(a):
            return np.pad(a.reshape(-1, run), ((0, 0), (0, steps * LANES - run)))

        numbers = Pair(padded(total.hi), padded(total.lo)) if arithmetic is Double else padded(total)
        lanes = arithmetic.all_wide(np.zeros((high(numbers).shape[0], LANES)))
        for step in range(steps):
            lanes = lanes + numbers[:, step * LANES : (step + 1) * LANES]
        for half in (8, 4, 2, 1):
            lanes = lanes[:, :half] + lanes[:, half:]
        return lanes[:, 0]

    once = summed(total)
    if arithmetic is Single:
        return once
    again = forward.scaled(summed(forward.scaled(total, -64)), 64)
    return chosen(np.isfinite(once.hi), once, again)


def finished(total, before, to, arithmetic):
    """Item 4: the sum, added to `before` where that is not None, in the type `to`."""
    total = total if before is None else arithmetic.plus(total, before.astype(np.float64))
    total = total.hi + without_nan(total).lo if arithmetic is Double else total
    return narrowed(np.where(np.isfinite(total), total, np.nan), to)


def gradients(
    dy, x, gamma=None, eps=1e-5, *, rms=False, zero_centered=False, to=None, params=None, before=(None, None), run=1
):
    """Sections 2 and 7: dx (rows, n) in the type `to` (x's), dgamma and dbeta (n,) in the types `params`.

    dy and x are (rows, n), gamma (n,) or None; without `params` it is the arithmetic's type, twice; `before` is what
    dgamma and dbeta are added to, (n,), or None. If `run` is not 1, runs of so many columns share an element of gamma,
    dgamma and dbeta: these are (n / run,).
    """
    to = x.dtype if to is None else np.dtype(to)
    types = {to} | {array.dtype for array in (dy, x, gamma) if array is not None}
    arithmetic = Double if Double.type in types else Single
    params = [np.dtype(arithmetic.type if params is None else t) for t in params or [None] * 2]
    with np.errstate(all="ignore"):
        begin, storage = row_blocks(x.shape, x.dtype, arithmetic), arithmetic.type
        dy, x = dy.astype(storage), x.astype(storage)
        gamma = np.ones(x.shape[1] // run, storage) if gamma is None else gamma.astype(storage)
        gamma = np.repeat(gamma + storage.type(1) if zero_centered else gamma, run)
        sums = [arithmetic.all_wide(np.zeros(x.shape[1] // run))] * 2  # of no rows
        if len(x):
            of = arithmetic.statistics(x, eps, rms)
            parts = parts_of_runs(dy, x, run, of, rms, arithmetic) if run >= 256 else None
            weighed = weighed_sums(parts, gamma[::run], arithmetic) if parts else None
            rows = Rows(dy, x, np.broadcast_to(gamma, x.shape), of, x.shape[1], rms, arithmetic, weighed)
            blocks = run_sums(parts, x, arithmetic) if parts else None
            blocks = blocks or [row_block_sums(rows, *ends) for ends in zip(begin, begin[1:], strict=False)]
            x = rows.dx
            sums = [joined(of_blocks) for of_blocks in zip(*blocks, strict=True)]
            sums = [shared_sums(a, run, arithmetic) for a in sums] if 1 < run < 256 else sums
        dgamma, dbeta = (finished(*each, arithmetic) for each in zip(sums, before, params, strict=True))
        return narrowed(x, to), dgamma, dbeta

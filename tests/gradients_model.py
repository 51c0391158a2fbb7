"""The gradients of layer norm and RMS norm, bit for bit, written from docs/numerics.md alone.

A second implementation in NumPy of what the library computes, for tests: one row at a time. The statistics and the
operations are those of numerics_model.py. "Section", "item" and "step" are those of docs/numerics.md, and the names are
those of its section 7.

>>> x, dy = np.float32([[4, 2, 8], [1, 1, 1]]), np.float32([[1, 0, -1], [2, 1, 0]])
>>> dx, dgamma, dbeta = gradients(dy, x, np.float32([1.5, 1, 0.5]))
>>> print(dx[0].round(4), dgamma.round(4), dbeta)
[ 0.4295 -0.2864 -0.1432] [-0.2673  0.     -1.3363] [ 3.  1. -1.]
"""

import numerics_model as forward
import numpy as np
from numerics_model import BLOCK, F32, F64, LANES, LEAST_RUN, fma, joined, lines, narrowed, parameter, tree

CHAIN = 4 * LANES  # columns


class Steps:
    """Steps 1 to 4 for one row, in the type of dy, x, gamma and k. lo and rstd are f64."""

    def __init__(self, dy, x, gamma, k, lo, rstd, rms):
        self.dy, self.g, self.d = dy, dy * gamma, k - x
        self.lo, self.rstd, self.rms, self.rs = lo, rstd, rms, x.dtype.type(rstd)

    def block_sums(self, columns, gamma=True):
        """Step 1: G and D of a block."""
        g, d = (lines(a[columns], CHAIN).reshape(-1, 4, LANES) for a in (self.g if gamma else self.dy, self.d))
        sums = np.zeros((2, LANES // 2))
        for (g0, g1, g2, g3), (d0, d1, d2, d3) in zip(g, d, strict=True):
            chain = np.array([((g0 + g1) + g2) + g3, fma(g1, d1, g0 * d0) + fma(g3, d3, g2 * d2)])
            sums += chain[:, :8] + chain[:, 8:]
        return tree(sums)

    def p(self, g_sum, d_sum):
        """Step 2: P. RMS norm has no G."""
        return -d_sum if self.rms else -fma(self.lo, g_sum, d_sum)

    def means(self, g_sum, p, n):
        """Step 2: c1, c2 and K."""
        i = 1 / np.float64(n)
        c1, c2 = np.float64(0) if self.rms else g_sum * i, (p * i) * self.rstd
        return c1, c2, (c2 * self.rstd) * self.rstd

    def dx(self, c1, k):
        """Steps 2 and 3."""
        k2, a = (self.rs.dtype.type(v) for v in (k, self.lo * k + (0 - c1 * self.rstd)))
        return fma(self.g, self.rs, fma(self.d, k2, a))

    def xhat(self):
        """Steps 2 and 4."""
        return fma(-self.d, self.rs, self.rs.dtype.type(-(self.lo * np.float64(self.rs))))


class Row:
    """One row: dx in the arithmetic's type, and what dgamma and dbeta take.

    steps: those of the row. usual, anew, wide: in f32 arithmetic, the steps of a row that is not rare, of its blocks that
    are found anew in f64, and of a rare row. by_run: G and D of each run, with gamma = 1.
    """

    def __init__(self, dy, x, gamma, eps, rms, arithmetic, run):
        """gamma: (n,), in the arithmetic's type. run: columns that share parameters."""
        self.n, self.arithmetic = len(x), arithmetic
        x = forward.finite_or_nan(x)
        (mean, lo, _, rstd), _ = forward.row_statistics(x, eps, rms, arithmetic, run)
        if self.n == 1 and not rms and not np.isnan(rstd):
            rstd = np.float64(0)
        limit = 2.0 ** (32 if arithmetic == F32 else 250)
        self.rare, power = rstd != 0 and not 1 / limit <= rstd <= limit, 0
        if arithmetic == F32:
            k = np.float32(mean)
            self.usual = Steps(dy.astype(F32), x.astype(F32), gamma, k, mean - k, rstd, rms)
            self.anew = Steps(dy.astype(F64), x, gamma.astype(F64), np.float64(k), mean - k, rstd, rms)
            self.wide = Steps(dy.astype(F64), x, gamma.astype(F64), mean, np.float64(0), rstd, rms)
            self.steps = self.wide if self.rare else self.usual
        else:
            if self.rare:
                *scaled, _, of_eps = forward.scaled(x, eps, rms, run)
                x, (mean, lo, _, rstd), power = (x, (mean, lo, None, rstd), 0) if of_eps else scaled
            lo = np.float64(0) if np.abs(mean) * rstd <= 1 else lo
            self.steps = Steps(dy.astype(F64), x, gamma, mean, lo, rstd, rms)
        self.xhat = self.steps.xhat()
        self.dx = np.ldexp(self.dx_of(*self.row_sums(gamma, run)), -power).astype(arithmetic)

    def block_sums(self, columns, of_run=False):
        """Steps 1 and 5: G and D of a block; of_run: with gamma = 1."""
        sums, needs_g = self.steps.block_sums(columns, not of_run), of_run or not self.steps.rms
        if self.steps.g.dtype == F64:
            return sums
        is_kept = np.isfinite(sums if needs_g else sums[1:]).all() and (np.abs(sums[1]) >= 2.0**-64 or not of_run)
        return sums if is_kept else self.anew.block_sums(columns, not of_run)

    def row_sums(self, gamma, run):
        """Step 1 and "Sums over rows", item 5: G and D of the row; gamma (n,)."""
        if run < LEAST_RUN:
            return forward.over_row(self.n, self.block_sums)
        self.by_run = forward.over_runs(self.n, lambda columns: self.block_sums(columns, True), run=run)
        return joined([weight * of_run for weight, of_run in zip(np.float64(gamma[::run]), self.by_run, strict=True)])

    def dx_of(self, g_sum, d_sum):
        """Steps 2, 3, 5 and 6."""
        c1, c2, k = self.steps.means(g_sum, self.steps.p(g_sum, d_sum), self.n)
        if not (np.isfinite(c1) and np.isfinite(c2)):
            return np.full(self.n, np.nan)
        dx = self.steps.dx(c1, k)
        usual = c2 == 0 or all(2.0**-126 <= np.abs(a) < np.inf for a in (c2, k))
        if self.arithmetic == F64 or (usual and np.isfinite(dx).all()):
            return dx
        return np.where(np.isfinite(dx) & usual & (not self.rare), dx, self.wide.dx(c1, k))

    def rare_terms(self):
        """ "Sums over rows", item 2: what a rare row of f32 arithmetic adds to dgamma and dbeta, (2, n)."""
        return np.array([self.wide.dy * self.wide.xhat(), self.wide.dy])

    def run_terms(self):
        """ "Sums over rows", item 5: what the row's runs add to dgamma and dbeta, (2, runs)."""
        return np.array([[self.steps.p(*sums) * self.steps.rstd, sums[0]] for sums in self.by_run]).T + 0.0  # not -0


# Sums over rows.


def row_blocks(shape, itemsize):
    """Item 1: where the row blocks begin, and where the last one ends; shape and bytes an element: of x."""
    rows, n = shape
    blocks = min(256, max(1, rows // (256 // itemsize)))
    if blocks == 1 and n <= BLOCK and rows * n >= 2**15:
        blocks = 2
    return [b * rows // blocks for b in range(blocks + 1)]


def row_block_sums(rows, arithmetic):
    """Items 2 and 3: dgamma and dbeta of the rows of a block, f64, (2, n)."""
    sums = np.zeros((2, len(rows[0].dx)))
    for first in range(0, len(rows), 8):
        chains = [None, None]
        for i, row in enumerate(rows[first : first + 8]):
            dy, xhat, chain = row.steps.dy, row.xhat, chains[i // 4]
            if row.rare and arithmetic == F32:
                sums += row.rare_terms()
            else:
                chains[i // 4] = (fma(dy, xhat, chain[0]), chain[1] + dy) if chain else (dy * xhat, dy)
        known = [np.array(chain) for chain in chains if chain is not None]
        for chain in [known[0] + known[1]] if arithmetic == F32 and len(known) == 2 else known:
            sums = sums + chain
    if arithmetic == F32 and not np.isfinite(sums).all():
        again = np.zeros_like(sums)
        for row in rows:
            again += row.rare_terms()
        sums = np.where(np.isfinite(sums), sums, again)
    return sums


def shared_sums(sums, run):
    """Item 5: the sums of columns, (2, n), to those of runs, (2, n / run)."""

    def of_run(numbers):
        lanes = np.zeros(LANES)
        for line in lines(numbers):
            lanes = lanes + line
        return tree(lanes)

    return np.array([[of_run(numbers) for numbers in a.reshape(-1, run)] for a in sums])


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
    arithmetic = F64 if F64 in types else F32
    params = [np.dtype(kind) for kind in params or [arithmetic] * 2]
    with np.errstate(all="ignore"):
        n = x.shape[1]
        weights = np.repeat(parameter(gamma, n // run, 1, arithmetic, zero_centered), run)
        rows = [Row(*row, weights, eps, rms, arithmetic, run) for row in zip(dy, x, strict=True)]
        begin = row_blocks(x.shape, x.dtype.itemsize)
        if not rows:
            blocks = [np.zeros((2, n // run))]
        elif run >= LEAST_RUN:
            blocks = [row.run_terms() for row in rows]
        else:
            blocks = [row_block_sums(rows[i:j], arithmetic) for i, j in zip(begin, begin[1:], strict=False)]
        sums = joined(blocks)
        sums = shared_sums(sums, run) if 1 < run < LEAST_RUN else sums
        sums = [a if b is None else a + b.astype(F64) for a, b in zip(sums, before, strict=True)]
        dgamma, dbeta = (narrowed(np.where(np.isfinite(a), a, np.nan), t) for a, t in zip(sums, params, strict=True))
        dx = [narrowed(row.dx, to) for row in rows]
        return np.array(dx).reshape(x.shape) if rows else np.empty(x.shape, to), dgamma, dbeta

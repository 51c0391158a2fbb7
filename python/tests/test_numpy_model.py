"""y, mean and rstd have the bits of tests/numerics_model.py, which is written from docs/numerics.md alone."""

import numpy as np
import pytest

import evenorm
from numpy_inputs import BF16, F16, F32, F64, RANGE, STORAGE, in_both_orders, load, one_of

model = load("tests/numerics_model.py")

COLUMNS = {
    F64: [1, 2, 5, 16, 33, 120, 1030],
    F32: [1, 2, 3, 17, 100, 1025, 5000],
    BF16: [1, 4, 31, 768, 2048, 2600],
    F16: [1, 7, 64, 1023, 1024, 3100],
}
EPS = [1e-5, 0.0, 1e-12, 1e30, 1e300, 5e-324, 2.0**251, 1.7e308]


def rows_of_all_kinds(rng, n, storage):
    """{kind: row (n,)} in f64, to be rounded to `storage`."""
    least, largest = RANGE[storage]
    z, spike = rng.standard_normal(n), np.arange(n) == rng.integers(n)
    low, high = {F64: (-250, 250), F16: (-12, 6)}.get(storage, (-60, 100))  # near the limits beyond which rows are rare
    rows = {f"mean {m:g}": z + m for m in (0, 0.5, 0.9, 1, 3, 1e3, 1e6, 1e12, 2.0**50)}
    return rows | {
        "mean of 9/10 of the std": (z - z.mean()) / (z.std() or 1) + 0.8125**0.5,
        "constant": np.full(n, 0.1),
        "large constant": np.full(n, -(2.0 ** (largest - 1))),
        "constant but for one": np.where(spike, 2, 0.3),
        "constant block": np.where(np.arange(n) < 1024, 7, z),
        "two neighbours": np.where(rng.random(n) < 0.5, 1.0, 1 + 2.0**-20),
        "outlier": z + 1e4 * spike,
        "lone": 3.0 * spike,
        "sorted": np.sort(z) * 30 + 100,
        "magnitudes": np.ldexp(z, rng.integers(-10, 10, n)),
        "all magnitudes": np.ldexp(z, rng.integers(least, largest - 3, n)),
        "subnormal": np.ldexp(rng.integers(-50, 50, n).astype(float), least),
        "lone subnormal": np.ldexp(spike.astype(float), least),
        "small": np.ldexp(z, least + 26 if storage != F16 else least + 6),
        "small, one not": np.ldexp(z, low) + spike,
        "small, rare or not": np.ldexp(z + 1, low),
        "large, rare or not": np.ldexp(z + 1, high),
        "rare with a large mean": np.ldexp(z + 1e6, high + 10 if storage != F16 else -10),
        "of any size": np.ldexp(z + 1, rng.integers(least, largest - 3)),
        "constant of any size": np.full(n, np.ldexp(1.2, rng.integers(least, largest))),
        "cancelling block": np.where(
            np.arange(n) < 1024, np.ldexp(1 - 2.0 * (np.arange(n) % 2), largest // 2 + 9), z + 5
        ),
        "huge": np.ldexp(z, largest - 4),
        "largest": np.ldexp(1 + spike / 2, largest),
        "zero": np.zeros(n),
        "zero of either sign": np.where(z < 0, -0.0, 0.0),
        "NaN": np.where(spike, np.nan, z),
        "infinity": np.where(spike, -np.inf, z),
    }


def parameter(rng, n, storage):
    """Weights or biases (n,), or None. They include subnormals, zeros of both signs and large numbers."""
    if rng.random() < 0.25:
        return None
    return (rng.standard_normal(n) * rng.choice([1, 1, 1, 1e-39, 1e4, -0.0])).astype(storage)


def expect_same(
    x, weight=None, bias=None, eps=1e-5, *, rms=False, zero_centered=False, to=None, kinds=None, groups=1, run=1
):
    """Compares the bits of y, in the type `to`, and of the statistics for all rows of x (rows, n).

    If `run` is not 1, each row is one of `groups` groups of n / run channels of an image, in both memory orders. Runs of
    so many columns share an element of weight and bias: these are (groups n / run,).
    """
    n, to = x.shape[1], x.dtype if to is None else np.dtype(to)
    parameters, images = [weight, bias], [x]
    if run != 1:
        parameters = [None if p is None else p.reshape(1, groups, n // run, 1) for p in parameters]
        images = in_both_orders(x.reshape(-1, groups, n // run, run))
    names = ["y", "rstd"] if rms else ["y", "mean", "rstd"]
    got = []
    for image in images:
        named = {"bias": parameters[1], "eps": eps, "zero_centered": zero_centered, "return_stats": True}
        norm = evenorm.rms_norm if rms else evenorm.layer_norm
        y, *of = norm(
            image, image.shape[-2 if run != 1 else -1 :], parameters[0], out=np.empty_like(image, to), **named
        )
        got.append([np.reshape(y, x.shape), *(np.ravel(a) for a in of)])
    wrong, labels = [], [f"row {i}" for i in range(len(x))] if kinds is None else kinds
    for i, row in enumerate(x):
        of_row = [None if p is None else np.repeat(p.reshape(groups, -1)[i % groups], run) for p in (weight, bias)]
        y, mean, rstd = model.norm_row(row, *of_row, eps, rms=rms, zero_centered=zero_centered, to=to, run=run)
        right = [y, rstd] if rms else [y, mean, rstd]
        for order, of in enumerate(got):
            what = [name for name, a, b in zip(names, of, right, strict=True) if a[i].tobytes() != b.tobytes()]
            if what:
                wrong.append(f"{', '.join(what)} of {labels[i]} in order {order}")
    types = [None if a is None else a.dtype.name for a in (x, weight, bias)]
    text = f"n={n} {groups=} {run=} {eps=} {rms=} {zero_centered=} x, weight, bias={types} {to=}: "
    assert not wrong, text + "; ".join(wrong)


@pytest.mark.parametrize("storage, n", [(s, n) for s in STORAGE for n in COLUMNS[s]], ids=str)
@np.errstate(all="ignore")
def test_rows(storage, n):
    rng = np.random.default_rng([n, STORAGE.index(storage)])
    rows = rows_of_all_kinds(rng, n, storage)
    for kinds in np.array_split(rng.permutation(list(rows)), 4):
        x = np.array([rows[kind] for kind in kinds]).astype(storage)
        types = [storage, storage, F32, BF16, F16] + [F64] * (n <= 1030)  # f64 arithmetic is slow here
        weight, bias = (parameter(rng, n, types[rng.integers(len(types))]) for _ in range(2))
        named = {
            "eps": EPS[rng.integers(len(EPS))] if rng.random() < 0.7 else float(2.0 ** rng.uniform(-1074, 1023.9)),
            "rms": bool(rng.random() < 0.4),
            "zero_centered": weight is not None and bool(rng.random() < 0.4),
            "to": types[rng.integers(len(types))],
        }
        expect_same(x, weight, bias, **named, kinds=kinds)


@pytest.mark.parametrize("storage", STORAGE, ids=str)
@np.errstate(all="ignore")
def test_runs(storage):
    """Groups of channels, whose runs are (run) pixels; a group may be one channel."""
    rng = np.random.default_rng(STORAGE.index(storage))
    sizes = [(1, 16), (2, 15), (70, 16), (33, 17), (8, 49), (17, 30), (1, 100), (5, 100), (3, 1000)]
    sizes += [(2, 1024), (1, 1025), (3, 1025), (64, 36), (1, 3000), (2, 3000)]
    for channels, run in sizes:
        rows, groups = rows_of_all_kinds(rng, channels * run, storage), int(rng.choice([1, 2, 4, 8]))
        kinds = rng.choice(list(rows), 8, replace=False)
        x = np.array([rows[kind] for kind in kinds])
        x[:3] += np.repeat(rng.uniform(-3, 3, (3, channels)), run, axis=1)  # runs with different means
        weight, bias = (parameter(rng, groups * channels, one_of(rng, [storage, F32, BF16])) for _ in range(2))
        if weight is None and bias is None:
            weight = np.ones(groups * channels, F32)
        named = {"eps": one_of(rng, EPS), "rms": bool(rng.random() < 0.3), "groups": groups, "run": run}
        expect_same(x.astype(storage), weight, bias, **named, kinds=kinds)


@pytest.mark.parametrize("mean", [1e8, 1e11, 1e14, 3e15])
def test_f64_rows_with_a_large_mean(mean):
    """The low part of the mean affects y. 1100, 2100 and 3100 columns are two, three and four blocks."""
    rng = np.random.default_rng(int(mean))
    for rows, n in ((6, 6), (6, 90), (8, 1100), (3, 2100), (2, 3100)):
        expect_same(rng.standard_normal((rows, n)) + mean, rng.standard_normal(n), rng.standard_normal(n), 1e-12)


@pytest.mark.parametrize("storage, n", [(F32, 1500), (BF16, 2600), (F32, 4900), (F16, 5000), (F32, 9300)], ids=str)
def test_joins(storage, n):
    rng = np.random.default_rng(n)
    steps = np.repeat(rng.uniform(-3, 3, (10, 10)), 1024, axis=1)[:, :n]  # blocks with different means
    expect_same((rng.standard_normal((10, n)) + steps).astype(storage), eps=0.0)


@pytest.mark.parametrize("storage, far", [(F64, 2.0**20), (F32, 2.0**8)], ids=str)
def test_near_the_limit_of_the_second_pass(storage, far):
    rng = np.random.default_rng(3)
    for n in (11, 100):
        expect_same((rng.standard_normal((12, n)) + far * rng.uniform(0.5, 2, (12, 1))).astype(storage), eps=0.0)


@pytest.mark.parametrize("storage", [F64, F32], ids=str)
def test_any_finite_bits(storage):
    rng = np.random.default_rng(4)
    for n in (1, 3, 20, 70):
        x = np.frombuffer(rng.bytes(6 * n * storage.itemsize), storage).reshape(6, n).copy()
        x[~np.isfinite(x)] = 1
        expect_same(x, rms=n == 20, eps=float(10 ** rng.uniform(-320, 308)))


@pytest.mark.parametrize("to", STORAGE, ids=str)
@np.errstate(all="ignore")
def test_roundings(to):
    """Constant rows give beta, so any number can be rounded: f64 and f32 of any bits, and numbers near halfway."""
    rng, constant = np.random.default_rng(5), np.full((1, 600), 3, F32)
    for storage in (F64, F32):
        expect_same(constant, None, np.frombuffer(rng.bytes(600 * storage.itemsize), storage), to=to)
    least, largest = RANGE[to]
    halfway = np.ldexp(rng.integers(-(2**12), 2**12, 600) + 0.5, rng.integers(least, max(least + 1, largest - 12), 600))
    expect_same(constant, None, halfway * (1 + rng.choice([-1, 0, 1], 600) * 2.0**-40), to=to)
    expect_same(constant, None, np.ldexp(rng.integers(-200, 200, 600) + 0.5 + 2.0**-40, least), to=to)


@np.errstate(all="ignore")
def test_any_parameters():
    rng, x = np.random.default_rng(6), np.random.default_rng(7).standard_normal((1, 500)).astype(F32)
    for storage in STORAGE:
        weight, bias = (np.frombuffer(rng.bytes(500 * storage.itemsize), storage) for _ in range(2))
        for zero_centered in (False, True):
            expect_same(x, weight, bias, zero_centered=zero_centered, rms=storage == BF16)


@pytest.mark.parametrize("storage", [F64, F32], ids=str)
def test_where_rstd_is_subnormal(storage):
    """eps is so large that a scaled row's rstd is that of eps, or subnormal, and gamma so large that this shows."""
    rng = np.random.default_rng(8)
    least, large = (-1022, 1e300) if storage == F64 else (-126, 1e37)
    for i in range(12):
        exponent = int(rng.integers(least, least // 2 + 100 if storage == F64 else 20))
        x = np.ldexp(rng.standard_normal((1, 9)) + 5 * (i % 2), exponent).astype(storage)
        far = 500 if storage == F64 and i % 4 == 0 else -2 * least
        eps = 2.0 ** min(1023.5, 2 * exponent + far + rng.uniform(-8, 60))
        expect_same(x, np.full(9, large, storage), eps=float(eps), rms=i % 3 == 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_signs_of_zero(sign):
    x = np.array([[0] * 4, [-0.0] * 4, [3] * 4, [0, -0.0, 1, -1]])
    for storage in STORAGE:
        for eps in (0.0, 1e-5, 1e300):
            expect_same(x.astype(storage), np.full(4, sign, F32), np.full(4, -0.0, F32), eps)

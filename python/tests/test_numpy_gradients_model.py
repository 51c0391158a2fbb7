"""dx, dweight and dbias have the bits of tests/gradients_model.py, which is written from docs/numerics.md alone."""

import numpy as np
import pytest

import evenorm
from numpy_inputs import BF16, F16, F32, F64, RANGE, STORAGE, in_both_orders, load, one_of

load("tests/numerics_model.py")  # gradients_model imports it
model = load("tests/gradients_model.py")

COLUMNS = [1, 2, 3, 4, 5, 8, 16, 17, 31, 33, 50, 100]
EPS = [1e-5, 1e-5, 0.0, 0.0, 1.0, 1e-12, 1e30, 1e300, 5e-324, 1e-152, 1e152, 1.7e308]


def types(rng, x=None):
    """Random types of x, dy, weight and dx."""
    x = one_of(rng, STORAGE) if x is None else x
    return [x] * 4 if rng.random() < 0.6 else [x, *(one_of(rng, [x, *STORAGE]) for _ in range(3))]


def x_row(rng, n, storage):
    """A random row (n,) of x in f64, to be rounded to `storage`."""
    least, largest = RANGE[storage]
    z, spike = rng.standard_normal(n), np.arange(n) == rng.integers(n)
    low, high = {F64: (-250, 250), F16: (-12, 6)}.get(storage, (-32, 32))  # near the limits beyond which rows are rare
    rows = [
        lambda: z,
        lambda: z + one_of(rng, [0.5, 1, 3, 1e3]),
        lambda: z + one_of(rng, {F64: [1e6, 1e9, 1e12, 2.0**50], F32: [3e4, 1e6]}.get(storage, [3e4])),
        lambda: np.round(3 * z),
        lambda: np.full(n, one_of(rng, [0.1, 0, -0.0, 3, 2.0**largest, 2.0**least])),
        lambda: np.where(spike, 2, 0.3),
        lambda: np.where(rng.random(n) < 0.5, 1.0, 1 + 2.0**-20),
        lambda: z + 1e4 * spike,
        lambda: 3.0 * spike,
        lambda: np.ldexp(z, rng.integers(-10, 10, n)),
        lambda: np.ldexp(z, rng.integers(least, largest - 3)),
        lambda: np.ldexp(rng.integers(-50, 50, n).astype(float), least),
        lambda: np.ldexp(z, low) + spike,
        lambda: np.ldexp(z + one_of(rng, [0, 1, 1e3]), one_of(rng, [low, high]) + rng.integers(-9, 9)),
    ]
    return one_of(rng, rows)()


def dy_row(rng, n, storage):
    """A random row (n,) of dy in f64."""
    least, largest = RANGE[storage]
    z = rng.standard_normal(n)
    rows = [
        lambda: z,
        lambda: z + 100,
        lambda: np.round(2 * z),
        lambda: np.full(n, one_of(rng, [1, 0.1, 0, -0.0])),
        lambda: np.where(rng.random(n) < 0.8, 0, z),
        lambda: np.ldexp(z, rng.integers(-20, 20, n)),
        lambda: np.ldexp(z, rng.integers(least, largest - 3)),
    ]
    return one_of(rng, rows)()


def weight_of(rng, n, storage):
    z = rng.standard_normal(n)
    large = {F64: 60, F16: 8}.get(storage, 40)
    weights = [z, np.round(2 * z), np.full(n, one_of(rng, [1, -2, 0, -0.0])), np.ldexp(z, rng.integers(-large, large))]
    return None if rng.random() < 0.2 else one_of(rng, weights).astype(storage)


def usual(rng, rows=None, n=None, kinds=None):
    """A problem {name: value}. kinds are the types of x, dy, weight and dx."""
    kinds = types(rng) if kinds is None else kinds
    rows = int(rng.integers(1, 9)) if rows is None else rows
    n = int(one_of(rng, COLUMNS)) if n is None else n
    weight = weight_of(rng, n, kinds[2])
    return {
        "x": np.array([x_row(rng, n, kinds[0]) for _ in range(rows)]).astype(kinds[0]),
        "dy": np.array([dy_row(rng, n, kinds[1]) for _ in range(rows)]).astype(kinds[1]),
        "weight": weight,
        "eps": one_of(rng, EPS),
        "rms": bool(rng.random() < 0.4),
        "zero_centered": weight is not None and bool(rng.random() < 0.3),
        "to": kinds[3],
        "params": [F64 if F64 in kinds else F32] * 2,
    }


def cancelled(rng, made):
    """The problem with pairs of equal rows whose dy differ in sign, so that sums over rows nearly cancel."""
    x, dy, half = made["x"], made["dy"], len(made["x"]) // 2
    order = rng.permutation(half)
    x[:half] = x[rng.integers(min(half, 6), size=half)]
    dy[:half] = np.ldexp(rng.standard_normal(dy[:half].shape), rng.integers(-9, 9, (half, 1))).astype(dy.dtype)
    x[half : 2 * half], dy[half : 2 * half] = x[order], -dy[order]
    x[2 * half :], dy[2 * half :] = 0, 0
    return made | {"eps": 0.0}


def many_rows(rng):
    """Up to 12 blocks of rows."""
    made = usual(rng, int(rng.integers(50, 420 if rng.random() < 0.8 else 800)), int(one_of(rng, [1, 2, 3, 5])))
    return cancelled(rng, made) if rng.random() < 0.6 else made


def many_columns(rng):
    """Up to 6 blocks of columns."""
    kinds = types(rng, one_of(rng, [F64, F32, F32, BF16, F16]))
    return usual(rng, int(rng.integers(1, 3)), int(rng.integers(1000, 3000 if F64 in kinds else 5500)), kinds)


def spread(rng, z, storage):
    """Numbers of all magnitudes that the type has, one for each number or one for each row."""
    least, largest = RANGE[storage]
    shape = z.shape if rng.random() < 0.5 else (*z.shape[:-1], 1)
    return np.ldexp(z, rng.integers(least, largest - 3, shape)).astype(storage)


def magnitudes(rng):
    made = usual(rng)
    for name in ("x", "dy", "weight"):
        if made[name] is not None and rng.random() < 0.6:
            made[name] = spread(rng, rng.standard_normal(made[name].shape), made[name].dtype)
    return made | {"eps": made["eps"] if rng.random() < 0.7 else float(10 ** rng.uniform(-320, 308))}


def any_bits(rng):
    """Finite numbers of any bits."""
    made = usual(rng)
    for name in ("x", "dy", "weight"):
        if made[name] is not None:
            a = np.frombuffer(rng.bytes(made[name].nbytes), made[name].dtype).reshape(made[name].shape).copy()
            a[~np.isfinite(a)] = 1
            made[name] = a
    return made


def not_finite(rng):
    made = usual(rng)
    for name, share in (("x", 0.03), ("dy", 0.03), ("weight", 0.02)):
        if made[name] is not None and rng.random() < 0.6:
            made[name][rng.random(made[name].shape) < share] = one_of(rng, [np.nan, np.inf, -np.inf])
    return made


def sums_cancel(rng):
    """Sums over a row or over rows whose terms nearly cancel, so that their last digits matter."""
    kind, rows = one_of(rng, [F64, F32]), 4
    n = int(one_of(rng, [3, 4, 7, 20, 40, 1100] if kind == F64 else [3, 4, 20, 40, 1100, 2900, 3500, 5200]))
    made, large = usual(rng, rows, n, [kind] * 4), one_of(rng, [1.0, 1.0, 2.0**600]) if kind == F64 else 1.0
    x, dy, weight = rng.standard_normal((rows, n)), np.round(3 * rng.standard_normal((rows, n))), np.ones(n)
    if rng.random() < 0.5:
        weight = (np.round(3 * rng.standard_normal(n)) + 0.3).astype(np.float32)
    if rng.random() < 0.3:  # dweight: equal rows, and dy that sum to 0
        x[:], dy[-1] = x[0], -dy[:-1].sum(axis=0)
    elif made["rms"]:  # c2, with a first dy of 0
        dy[:, 0] = 0
        dy[:, -1] = -(dy * x * weight)[:, :-1].sum(axis=1) / (x[:, -1] * weight[-1])
    elif rng.random() < 0.5:  # c1, with a first x that is the mean
        x[:, 1::2], x[:, 0], dy[:, 0] = 0, 0, 0
        x[:, 1:-1:2] = -x[:, 2::2]
        dy[:, -1] = -(dy * weight)[:, :-1].sum(axis=1) / weight[-1]
    else:  # c1 = 0, with a first x that is the rounded mean
        x, weight = (x + one_of(rng, [9.0, 1e3, 1e6])).astype(kind), np.ones(n)
        x[:, 0], dy[:, 0], dy[:, -1] = x[:, 1:].mean(axis=1, dtype=np.float64), 0, -dy[:, 1:-1].sum(axis=1)
    arrays = {"x": x, "dy": dy * large, "weight": weight}
    return made | {name: a.astype(kind) for name, a in arrays.items()} | {"eps": 0.0, "zero_centered": False}


def far_apart(rng):
    """f64 rows whose terms are so far apart that products leave the range."""
    rows, n, gap = 3, int(one_of(rng, [1, 2, 3, 4, 8])), int(rng.integers(850, 1150))
    x, dy = (np.round(2 * z) if rng.random() < 0.5 else z for z in rng.standard_normal((2, rows, n)))
    x[rng.random(x.shape) < 0.2] = 0
    x[:, 0] = np.ldexp(x[:, 0], one_of(rng, [0, 400, -200, 700]))
    dy = np.ldexp(dy, np.where(rng.random(dy.shape) < 0.6, 1000 - gap, 1000))
    return usual(rng, rows, n, [F64] * 4) | {"x": x, "dy": dy, "eps": one_of(rng, [0.0, 1.0])}


def limits(rng):
    """x, rstd, dy, gamma and k2 near the limits where the library computes rows in another way."""
    kind, n = one_of(rng, [F64, F64, F32]), int(one_of(rng, [2, 3, 4, 16, 33]))
    made, u = usual(rng, 3, n, [kind] * 4), np.finfo(kind).eps
    x, dy, weight = rng.standard_normal((3, n)), rng.standard_normal((3, n)), rng.standard_normal(n)
    x = x if rng.random() < 0.5 else np.where(x < 0, -1.0, 1.0)
    near, place = one_of(rng, [0.5, 1 - u / 2, 1, 1 + u, 2, 1 + rng.random()]), rng.integers(n)
    at = int(rng.integers(7 if kind == F64 else 3))
    if at == 0:
        x *= near * 2.0 ** one_of(rng, [-250, 250, 480, -400] if kind == F64 else [-32, 32])
    elif at < 3:
        of_x, of_dy, of_weight = (290, -292, -96) if kind == F64 else (30, -94, -2)
        x, dy, weight = np.ldexp(x, of_x), np.ldexp(dy, of_dy), near * np.ldexp(weight, of_weight)
    elif at == 3:
        x[1, place] = near * 2.0**-500
    elif at == 4:
        dy[1, place] = near * 2.0 ** one_of(rng, [-300, 300])
    elif at == 5:
        weight[place] = near * 2.0 ** one_of(rng, [-100, 100])
    else:  # dy is 0 except for tiny x
        tiny = rng.random((3, n)) < 0.5
        x, dy = np.ldexp(x, np.where(tiny, -rng.integers(300, 490), rng.integers(100, 290))), np.ldexp(dy * tiny, -290)
    arrays = {"x": x, "dy": dy, "weight": weight}
    return made | {name: a.astype(kind) for name, a in arrays.items()} | {"zero_centered": False, "eps": 0.0}


def added(rng):
    """dweight and dbias of any type, overwritten or added to, and statistics from the forward pass."""
    made, params = usual(rng), [one_of(rng, STORAGE) for _ in range(2)]
    before = [(3 * rng.standard_normal(made["x"].shape[1])).astype(t) for t in params]
    return made | {"params": params, "before": before if rng.random() < 0.7 else [None] * 2, "handed": True}


def shared(rng):
    """Any of the problems above, with a weight that neighbouring columns share."""
    run = int(one_of(rng, [2, 3, 15, 16, 17, 33, 100, 257, 400, 1024, 1025, 3000]))
    if rng.random() < 0.4:
        made = one_of(rng, KINDS[:10])(rng) if run < 1000 else many_columns(rng)
    else:
        kinds = types(rng)
        most = min(70, (1500 if F64 in kinds else 4000) // run + 1)
        made = usual(rng, int(rng.integers(1, 9)), run * int(rng.integers(1, most + 1)), kinds)
    rows, n = len(made["x"]), -(-made["x"].shape[1] // run) * run
    groups = int(one_of(rng, [i for i in range(1, min(rows, 8) + 1) if rows % i == 0]))
    shape = groups * n // run
    made |= {name: np.resize(made[name].T, (n, rows)).T.copy() for name in ("x", "dy")}
    if made["weight"] is not None:
        made["weight"] = np.resize(made["weight"], shape)
    if made.get("before", [None])[0] is not None:
        made["before"] = [np.resize(a, shape) for a in made["before"]]
    return made | {"groups": groups, "run": run}


KINDS = [
    usual,
    many_rows,
    many_columns,
    magnitudes,
    any_bits,
    not_finite,
    sums_cancel,
    far_apart,
    limits,
    added,
    shared,
]


def of_library(
    x, dy, weight, eps, rms, zero_centered, to, params, before=(None, None), handed=False, groups=1, run=1, order=0
):
    """Returns dx, dweight and, for layer norm, dbias.

    If `run` is not 1, each row is one of `groups` groups of n / run channels of an image, in one of two memory orders.
    """
    rows, n = x.shape
    shape = of_weight = (n,)
    if run != 1:
        shape, of_weight = (n // run, run), (1, groups, n // run, 1)
        x, dy = (in_both_orders(a.reshape(rows // groups, groups, *shape))[order] for a in (x, dy))
        weight, *before = (None if a is None else a.reshape(of_weight) for a in (weight, *before))
    sums = [np.empty(of_weight, kind) if a is None else a.copy() for kind, a in zip(params, before, strict=True)]
    named = {"eps": eps, "zero_centered": zero_centered, "accumulate": before[0] is not None}
    if handed:  # by a pass of the same arithmetic and runs
        types = [a.dtype for a in (x, dy, weight) if a is not None] + [np.dtype(to)]
        of_forward = np.ones(of_weight, F64 if F64 in types else F32)
    if rms:
        if handed:
            named["rstd"] = evenorm.rms_norm(x, shape, of_forward, eps, return_stats=True)[1]
        return evenorm.rms_norm_backward(dy, x, shape, weight, out=(np.empty_like(x, to), sums[0]), **named)
    if handed:
        named["mean"], named["rstd"] = evenorm.layer_norm(x, shape, of_forward, eps=eps, return_stats=True)[1:]
    return evenorm.layer_norm_backward(dy, x, shape, weight, out=(np.empty_like(x, to), *sums), **named)


def of_model(x, dy, weight, eps, before=(None, None), handed=False, groups=1, **named):
    """Each group is a set of rows."""
    weight, *before = ([None] * groups if a is None else a.reshape(groups, -1) for a in (weight, *before))
    sets = range(groups)
    made = [
        model.gradients(dy[i::groups], x[i::groups], weight[i], eps, before=[a[i] for a in before], **named)
        for i in sets
    ]
    dx, *sums = zip(*made, strict=True)
    return np.stack(dx, axis=1), *(np.stack(a) for a in sums)


def difference(made):
    """Returns "" if all bits are equal, else the names of the results that differ and a summary of the problem."""
    right, wrong = of_model(**made), []
    for order in range(1 if made.get("run", 1) == 1 else 2):
        for name, a, b in zip(["dx", "dweight", "dbias"], of_library(**made, order=order), right, strict=False):
            if a.dtype != b.dtype or a.tobytes() != b.tobytes():
                wrong.append(f"{name} in order {order}")
    if not wrong:
        return ""
    text = {name: a.dtype.name if isinstance(a, np.ndarray) else a for name, a in made.items()}
    return f"{', '.join(wrong)} of x {made['x'].shape}, {text}"


@pytest.mark.parametrize("numbers", [range(60), pytest.param(range(60, 300), marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@np.errstate(all="ignore")
def test_random_problems(kind, numbers):
    wrong = {i: difference(kind(np.random.default_rng([i, KINDS.index(kind)]))) for i in numbers}
    assert not any(wrong.values()), "\n".join(f"{kind.__name__} {i}: {text}" for i, text in wrong.items() if text)


@pytest.mark.parametrize("eps", [1.7e308, 0.0])
@np.errstate(all="ignore")
def test_long_runs_of_f64(eps):
    """Rare rows, whose runs are not weighed, and sums that are not finite unless gamma is in them."""
    rng = np.random.default_rng(1)
    made = usual(rng, 4, 1200, [F64] * 4) | {"run": 300, "weight": np.array([1.5, -0.7, 0.3, 0.0]), "eps": eps}
    x, dy = rng.standard_normal((2, 4, 1200))
    x[1] *= 2.0**600
    dy[2:, 900:] = 2.0**1023
    assert not any(difference(made | {"x": x, "dy": dy, "rms": rms, "zero_centered": False}) for rms in (False, True))


@pytest.mark.parametrize("storage", [F32, BF16], ids=str)
@np.errstate(all="ignore")
def test_one_row_block_or_two(storage):
    """Sizes near 2^15 elements and near 1024 columns, where the number of row blocks changes."""
    for rows in (33, 64, 100, 127):
        for n in (-(-(2**15) // rows) - 1, -(-(2**15) // rows), 1024, 1025):
            rng = np.random.default_rng([rows, n])
            assert not difference(cancelled(rng, usual(rng, rows, n, [storage] * 4))), (rows, n)


@pytest.mark.parametrize("run", [1, 100])
@np.errstate(all="ignore")
def test_where_g_overflows(run):
    """RMS norm needs no sum of g, but runs do."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        made = usual(rng, 4, 200, [F32] * 4) | {"weight": np.ones(200 // run, F32), "eps": 0.0, "run": run}
        x, dy = rng.standard_normal((4, 200)), 2.0**125 * (1.1 + rng.random((4, 200)))
        made |= {"x": x.astype(F32), "dy": dy.astype(F32), "rms": seed % 4 != 0, "zero_centered": False}
        assert not difference(made), seed


@pytest.mark.slow
@np.errstate(all="ignore")
def test_most_row_blocks():
    """256 blocks of at least 64 rows."""
    rng = np.random.default_rng(1)
    assert not difference(cancelled(rng, usual(rng, 16700, 2, [F32] * 4)) | {"weight": None})

"""Every function against the formulas in 120 digits, within the bounds that docs/numerics.md promises."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import evenorm
import numpy_inputs as inputs
from numpy_reference import ONE, ZERO, Row, exact, rounding, unit, worst

BF16 = ml_dtypes.bfloat16
NAMES = ["normal", "mean_1e4", "mean_1e6", "outlier_10000_at_5", "std_1e30", "std_1e-30", "std_1e-300", "subnormal",
         "constant_0.1", "one_ulp_0.1"]  # fmt: skip
FUNCTIONS = {"layer": evenorm.layer_norm, "rms": evenorm.rms_norm}
EPS32, EPS64 = 2.0**-23, 2.0**-52


def rows(kind, cols):
    return np.stack([inputs.row(name, kind, cols, 7) for name in NAMES if inputs.fits(name, kind, cols)])


def check_rows(y, x, weight, bias, eps, rms, zero_centered=False):
    """Each row of y within the bound; one more rounding where y has another type than the arithmetic."""
    u = unit(x, weight, bias, y)
    cols = x.shape[-1]
    w = [ONE] * cols if weight is None else [v + 1 if zero_centered else v for v in exact(weight)]
    b = [ZERO] * cols if bias is None else exact(bias)
    narrowed = y.dtype.itemsize * 8 < (64 if u < 1e-10 else 32)
    for one_x, one_y in zip(x, y, strict=True):
        row = Row(exact(one_x), eps, rms)
        expected, allowed = row.y(w, b), row.y_bound(u, w, b, zero_centered)
        if narrowed:
            allowed = [a + rounding(abs(e) + a, y.dtype) for a, e in zip(allowed, expected, strict=True)]
        assert worst(one_y, expected, allowed) <= 1


@pytest.mark.parametrize("cols", [1, 2, 3, 17, 257])
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_forward(kind, dtype, cols):
    x, weight, bias = rows(dtype, cols), inputs.weight(dtype, cols), inputs.bias(dtype, cols)
    y = FUNCTIONS[kind](x, cols, weight, bias=bias, eps=1e-5)
    assert y.dtype == x.dtype and y.shape == x.shape
    if dtype == "f16":  # huge weights would leave its range
        assert np.isfinite(y.astype(np.float32)).all()
    check_rows(y, x, weight, bias, 1e-5, kind == "rms")


@pytest.mark.parametrize(
    "x_dtype,y_dtype,w_dtype",
    [("f32", "bf16", "f32"), ("bf16", "f32", "f32"), ("bf16", "bf16", "f64"), ("f64", "f32", "f32"),
     ("f32", "f64", "bf16"), ("f64", "f16", "f64")],
)  # fmt: skip
def test_mixed_types(x_dtype, y_dtype, w_dtype):
    x, weight = rows(x_dtype, 33), inputs.weight(w_dtype, 33)
    y = evenorm.layer_norm(x, 33, weight, out=np.empty(x.shape, inputs.DTYPES[y_dtype]))
    check_rows(y, x, weight, None, 1e-5, rms=False)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_zero_centered(kind):
    x, weight = rows("f32", 65), inputs.stored(inputs.weight("f32", 65).astype(np.float64) - 1, "f32")
    y = FUNCTIONS[kind](x, 65, weight, eps=1e-5, zero_centered=True)
    # 1 + weight is rounded once: one u more.
    exact_weight = (weight.astype(np.float64) + 1).astype(np.float32)
    check_rows(y, x, exact_weight, None, 1e-5, kind == "rms")


def test_eps_of_rms_norm_is_that_of_the_type():
    for dtype, eps in [(np.float64, EPS64), (np.float32, EPS32), (np.float16, EPS32), (BF16, EPS32)]:
        x = np.array([[1e-3, 2e-3, -1e-3]]).astype(dtype)
        assert np.array_equal(evenorm.rms_norm(x, 3), evenorm.rms_norm(x, 3, eps=eps))
        assert not np.array_equal(evenorm.rms_norm(x, 3), evenorm.rms_norm(x, 3, eps=1e-5))


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
def test_statistics(dtype):
    x = rows(dtype, 129)
    y, mean, rstd = evenorm.layer_norm(x, 129, return_stats=True)
    y_rms, rstd_rms = evenorm.rms_norm(x, 129, eps=1e-5, return_stats=True)
    assert np.array_equal(y, evenorm.layer_norm(x, 129)) and np.array_equal(y_rms, evenorm.rms_norm(x, 129, eps=1e-5))
    assert mean.dtype == rstd.dtype == rstd_rms.dtype == np.float64 and mean.shape == rstd.shape == x.shape[:1]
    for one, m, r, r_rms in zip(x, mean, rstd, rstd_rms, strict=True):
        layer, rms = Row(exact(one), 1e-5, False), Row(exact(one), 1e-5, True)
        assert abs(exact([m])[0] - layer.mean) <= 100 * unit(x.astype(np.float64)) * layer.largest_x
        for found, right in [(r, layer.rstd), (r_rms, rms.rstd)]:
            assert abs(exact([found])[0] - right) <= 2 * unit(x) * right


@pytest.mark.parametrize("kind,dtype", list(itertools.product(["layer", "rms"], ["f64", "f32", "bf16", "f16"])))
def test_gradients(kind, dtype):
    rms, cols = kind == "rms", 19
    x, weight = rows(dtype, cols), inputs.weight(dtype, cols)
    dy = np.stack([inputs.row("normal", dtype, cols, 50 + i) for i in range(len(x))])
    if rms:
        dx, dweight = evenorm.rms_norm_backward(dy, x, cols, weight, 1e-5)
    else:
        dx, dweight, dbias = evenorm.layer_norm_backward(dy, x, cols, weight)
    u = unit(x)
    assert dx.dtype == x.dtype and dweight.dtype == (np.float64 if dtype == "f64" else np.float32)
    w = exact(weight)
    sums, allowed_sums = [ZERO] * cols, [ZERO] * cols
    for one_x, one_dy, one_dx in zip(x, dy, dx, strict=True):
        row, d = Row(exact(one_x), 1e-5, rms), exact(one_dy)
        g = [a * b for a, b in zip(d, w, strict=True)]
        expected, allowed = row.dx(g, rms), row.dx_bound(u, g, rms)
        slack = rounding(ZERO, dx.dtype) * (2 + row.rstd)  # among subnormal numbers
        allowed = [a + slack + (rounding(abs(e) + a, dx.dtype) if dtype in ("bf16", "f16") else 0)
                   for a, e in zip(allowed, expected, strict=True)]  # fmt: skip
        assert worst(one_dx, expected, allowed) <= 1
        sums = [s + a * v for s, a, v in zip(sums, d, row.xhat, strict=True)]
        allowed_sums = [s + 4 * u * abs(a) * v for s, a, v in zip(allowed_sums, d, row.h(u, rms), strict=True)]
    assert worst(dweight, sums, allowed_sums) <= 1
    if not rms:
        column = [sum(exact(dy[:, i])) for i in range(cols)]
        absolute = [sum(abs(v) for v in exact(dy[:, i])) * u * (1 + unit(x) * 2**14) for i in range(cols)]
        assert worst(dbias, column, absolute) <= 1


def test_4096_gradients_of_1_add_up_to_4096():
    x = np.stack([inputs.row("normal", "bf16", 64, 3)] * 4096)
    _, _, dbias = evenorm.layer_norm_backward(np.ones_like(x), x, 64)
    assert dbias.dtype == np.float32 and (dbias == 4096).all()


def test_what_is_not_finite_stays_in_its_row():
    x = np.tile(inputs.row("normal", "f32", 40, 1), (4, 1))
    x[1, 3], x[2, 39] = np.nan, -np.inf
    y, mean, rstd = evenorm.layer_norm(x, 40, return_stats=True)
    assert np.isnan(y[1:3]).all() and np.isnan(mean[1:3]).all() and np.isnan(rstd[1:3]).all()
    assert np.array_equal(y[0], y[3]) and np.isfinite(y[0]).all()


def test_one_column_and_constant_rows():
    bias = np.float32([0.25])
    assert (evenorm.layer_norm(np.float32([[3], [1e30]]), 1, np.float32([7]), bias, 0) == 0.25).all()
    dx, dweight, dbias = evenorm.layer_norm_backward(np.float32([[1], [2]]), np.float32([[3], [4]]), 1)
    assert dx.tolist() == [[0], [0]] and dweight.tolist() == [0] and dbias.tolist() == [3]
    assert (evenorm.rms_norm(np.zeros((2, 5)), 5, eps=0) == 0).all()

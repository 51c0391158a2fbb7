"""evenorm.check: its numbers are those of NumPy's long double, for rows of every kind and results of any quality."""

import subprocess

import ml_dtypes
import numpy as np
import pytest

import evenorm
from evenorm._command import PROGRAM

BF16 = ml_dtypes.bfloat16
CHECKED = np.random.default_rng(3)


def expected(x, y, weight=1, bias=0, eps=1e-5, rms=False):
    """The numbers of the rows of x, in 80 bits. Needs no scaling: x is moderate."""
    finite = np.isfinite(x.astype(float)).all(1)
    rows, y = x[finite].astype(np.longdouble), y[finite]
    mean = 0 * rows[:, :1] if rms else rows.mean(1, keepdims=True)
    apart = np.where((rows == rows[:, :1]).all(1, keepdims=True) & (not rms), 0, rows - mean)
    std = np.sqrt((apart**2).mean(1, keepdims=True))
    xhat = apart / np.sqrt(std**2 + np.longdouble(eps))
    exact = xhat * np.asarray(weight, np.longdouble) + np.asarray(bias, np.longdouble)
    off = np.abs(y.astype(np.longdouble) - exact)
    if y.dtype != np.float32:  # the numbers that round to y are as good as y
        up, down = (np.nextafter(y, y.dtype.type(end)).astype(np.longdouble) for end in (np.inf, -np.inf))
        middle = y.astype(np.longdouble)
        off = np.maximum(0, np.maximum(exact - (up + middle) / 2, (down + middle) / 2 - exact))
    terms = np.abs(weight) * np.abs(xhat).max(1, keepdims=True) + np.abs(bias)
    error = np.divide(off, terms, out=np.zeros_like(off), where=off > 0).max(1) * 2.0**24
    ratio = np.divide(np.abs(mean), std, out=0 * std, where=std > 0)[:, 0]
    moved = std[std > 0]
    return {
        "rows": len(x),
        "rows_not_finite": int((~finite).sum()),
        "constant_rows": int((std == 0).sum()),
        "rows_changed_by_eps": int((1 - moved / np.sqrt(moved**2 + eps) > 1e-3).sum()),
        "mean_over_std": {"median": np.quantile(ratio, 0.5, method="inverted_cdf"), "largest": ratio.max()},
        "std": {"smallest": std.min(), "largest": std.max()},
        "largest_xhat": np.divide(np.abs(apart), std, out=0 * apart, where=std > 0).max(),
        "error": {
            "largest": error.max(),
            "row": int(np.flatnonzero(finite)[error.argmax()]),
            "median": np.quantile(error, 0.5, method="inverted_cdf"),
            "percent_99": np.quantile(error, 0.99, method="inverted_cdf"),
        },
        "misrounded": int((off > 0).sum()),
    }


def rows(dtype):
    x = CHECKED.standard_normal((300, 96)) * CHECKED.lognormal(0, 2, (300, 1)) + CHECKED.standard_normal((300, 1)) * 9
    x[4], x[20], x[30, 5], x[31, 6] = 2.5, 1e-4 * x[20], np.nan, np.inf
    return x.astype(dtype)


def naive(x, weight, bias, rms):
    """E[x^2] - m^2 in float32, which loses digits where the mean is large."""
    x = x.astype(np.float32)
    mean = 0 if rms else x.mean(1, keepdims=True)
    variance = np.maximum((x * x).mean(1, keepdims=True) - mean * mean, 0)
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * weight + bias


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_the_numbers_are_numpys(dtype, rms):
    x, weight, bias = rows(dtype), np.float32(CHECKED.standard_normal(96)), np.float32(CHECKED.standard_normal(96))
    with np.errstate(invalid="ignore"):
        y = naive(x, weight, bias, rms).astype(dtype)
    norm = evenorm.rms_norm if rms else evenorm.layer_norm
    for result in (y, norm(x, 96, weight, bias=bias, eps=1e-5)):
        found = evenorm.check(x, result, weight, bias, rms=rms)
        for name, value in expected(x, result, weight, bias, rms=rms).items():
            if (name == "misrounded" and dtype == np.float32) or (name == "mean_over_std" and rms):
                continue
            value = value if isinstance(value, dict) else {"value": value}
            told = found[name] if isinstance(found[name], dict) else {"value": found[name]}
            assert {one: told[one] for one in value} == pytest.approx(value, rel=1e-4, abs=1e-6), name
        assert str(found) == found["text"]


def test_a_fast_variance_fails_and_evenorm_passes():
    x = np.float32(CHECKED.standard_normal((64, 384)) + 100)
    assert not evenorm.check(x, naive(x, 1, 0, False), within=4)["pass"]
    assert evenorm.check(x, within=4)["pass"] and evenorm.check(x, evenorm.layer_norm(x, 384), within=4)["pass"]


def test_axes_tensors_and_zero_centred_weights():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    x = np.float32(CHECKED.standard_normal((4, 6, 5)))
    weight = np.float32(CHECKED.standard_normal(6))
    y = evenorm.layer_norm(x, None, weight, axis=1, zero_centered=True)
    y[2, 3, 1] += 1
    for array in (np.asarray, torch.tensor, jnp.asarray):
        found = evenorm.check(array(x), array(y), array(weight), axis=1, zero_centered=True)
        assert (found["rows"], found["error"]["row"], found["error"]["column"]) == (20, 11, 3)
    short = torch.tensor(x).bfloat16()[:, :, ::2]
    assert evenorm.check(short, torch.nn.functional.layer_norm(short, (3,)))["y_dtype"] == "bf16"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"x": np.zeros((2, 3), np.int32)}, "x has dtype int32, but it should be float64"),
        ({"y": np.zeros((3, 2), np.float32)}, r"y has shape \(3, 2\), but should have that of x, \(2, 3\)"),
        ({"weight": np.zeros(2, np.float32)}, r"weight has shape \(2\)"),
        ({"axis": 2}, "axis names axis 2, but x has shape"),
        ({"eps": -1}, "eps is -1"),
    ],
)
def test_errors_name_the_argument(words, error):
    with pytest.raises((TypeError, ValueError), match=error):
        evenorm.check(**{"x": np.ones((2, 3), np.float32), **words})


def test_the_program_reads_what_savez_writes(tmp_path):
    x = np.float32(CHECKED.standard_normal((8, 6)))
    np.savez(tmp_path / "run.npz", x=x, y=evenorm.layer_norm(x, 6))
    words = [PROGRAM, "check", "--x", tmp_path / "run.npz:x", "--y", tmp_path / "run.npz:y", "--within", "4"]
    assert subprocess.run(words, capture_output=True).returncode == 0

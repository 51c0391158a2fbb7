"""weight and bias that are broadcast, group norm and instance norm: the bits of layer norm row by row."""

import numpy as np
import pytest

import evenorm
from numpy_inputs import DTYPES, normal


@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_for_each_sample(dtype):
    x, dy, weight, bias = (normal(dtype, 3, *shape, seed=i) for i, shape in enumerate([(50, 40)] * 2 + [(1, 40)] * 2))
    y = evenorm.layer_norm(x, 40, weight, bias)
    dx, dweight, dbias = evenorm.layer_norm_backward(dy, x, 40, weight)
    for i in range(3):
        np.testing.assert_array_equal(y[i], evenorm.layer_norm(x[i], 40, weight[i, 0], bias[i, 0]))
        alone = evenorm.layer_norm_backward(dy[i], x[i], 40, weight[i, 0])
        for got, want in zip((dx[i], dweight[i, 0], dbias[i, 0]), alone, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("groups", [1, 3, 12])
def test_group_norm(dtype, channels_last, groups):
    x, weight, bias = normal(dtype, 2, 12, 5, 7), normal(dtype, 12, seed=2), normal(dtype, 12, seed=3)
    if channels_last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    y, mean, rstd = evenorm.group_norm(x, groups, weight, bias, return_stats=True)
    contiguous = evenorm.group_norm(np.ascontiguousarray(x), groups, weight, bias, return_stats=True)
    for got, want in zip((y, mean, rstd), contiguous, strict=True):
        np.testing.assert_array_equal(got, want)
    rows = np.ascontiguousarray(x).reshape(2 * groups, -1)
    full = [np.repeat(p, 35).reshape(groups, -1) for p in (weight, bias)]
    for row in range(2 * groups):
        want, *stats = evenorm.layer_norm(
            rows[row], len(rows[row]), *(p[row % groups] for p in full), return_stats=True
        )
        of_row = np.ascontiguousarray(y).reshape(2 * groups, -1)[row]
        found = [mean.ravel()[row], rstd.ravel()[row]]
        if groups == 12:
            np.testing.assert_array_equal(of_row, want)
            assert found == stats
        else:  # each channel is summed by itself
            tolerance = 1e-2 if y.itemsize == 2 else 1e-5
            np.testing.assert_allclose(of_row.astype(float), want.astype(float), rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(found, stats, rtol=1e-12, atol=1e-14)
    out = np.empty_like(x)
    assert evenorm.group_norm(x, groups, weight, bias, out=out) is out
    np.testing.assert_array_equal(out, y)
    if groups == 12:
        np.testing.assert_array_equal(evenorm.instance_norm(x, weight, bias), y)


def test_wrong_arguments():
    x = np.zeros((2, 6, 4), np.float32)
    for call, message in [
        (
            lambda: evenorm.group_norm(x, 4),
            r"x has shape \(2, 6, 4\), but it should be \(N, C, ...\), where num_groups, 4",
        ),
        (lambda: evenorm.group_norm(x[0, 0], 1), r"x has shape \(4,\)"),
        (lambda: evenorm.group_norm(x, 2, np.ones(5)), r"weight has shape \(5,\), but x has 6 channels"),
        (lambda: evenorm.group_norm(x, 2, out=x[0]), r"out should be a NumPy array of x's shape \(2, 6, 4\)"),
        (lambda: evenorm.layer_norm(x, 4, np.ones((2, 5, 4))), r"weight has shape \(2, 5, 4\), but x has \(2, 6, 4\)"),
        (
            lambda: evenorm.layer_norm_backward(x, x, 4, np.ones((2, 1, 4)), out=(None, np.ones((1, 6, 4)), None)),
            r"dweight has shape \(1, 6, 4\), but weight has \(2, 1, 4\)",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_arrays_of_group_norm_are_read_as_those_of_layer_norm():
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    for call in [
        lambda: evenorm.group_norm(np.ma.array(x, mask=x > 3), 2),
        lambda: evenorm.group_norm(x, 2, np.ma.array(np.ones(4), mask=[0, 1, 0, 0])),
        lambda: evenorm.group_norm(x, 2, [1, None, 1, 1]),
        lambda: evenorm.group_norm(x, 2, ["1", "1", "1", "1"]),
    ]:
        with pytest.raises(TypeError, match="^(x|weight) "):
            call()
    assert evenorm.group_norm(x.tolist(), 2).dtype == np.float64
    np.testing.assert_array_equal(evenorm.group_norm(x, 2, [1, 1, 1, 1]), evenorm.group_norm(x, 2))


def test_gradients_of_runs_keep_their_digits():
    """Of dy and x so small that their products are subnormal."""
    for dtype, size_of_dy, size_of_x in ((np.float32, 1e-36, 1e-9), (np.float64, 1e-235, 1e-89)):
        rng = np.random.default_rng(0)
        x, dy = ((rng.standard_normal((1, 1, 300)) * size).astype(dtype) for size in (size_of_x, size_of_dy))
        found = evenorm.layer_norm_backward(dy, x, 300, np.ones((1, 1, 1), dtype), eps=0.0)[1]
        wide = x.astype(np.longdouble)
        xhat = (wide - wide.mean()) / wide.std()
        np.testing.assert_allclose(found.ravel()[0], np.float64((dy * xhat).sum()), rtol=1e-5)

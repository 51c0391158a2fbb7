"""Values and types of results that do not need a model. test_numpy_model.py compares all other bits."""

import numpy as np
import pytest

import evenorm
from numpy_inputs import DTYPES, normal


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_results(dtype):
    x = normal(dtype, 4, 8)
    y, mean, rstd = evenorm.layer_norm(x, 8, return_stats=True)
    assert y.dtype == x.dtype and mean.dtype == rstd.dtype == np.float64
    dx, dweight, dbias = evenorm.layer_norm_backward(x, x, 8)
    assert dx.dtype == x.dtype and dweight.dtype == dbias.dtype == (np.float64 if dtype == "f64" else np.float32)
    _, dweight, dbias = evenorm.layer_norm_backward(x, x, 8, param_dtype="float16")
    assert dweight.dtype == dbias.dtype == np.float16


@pytest.mark.parametrize("dtype", DTYPES)
def test_default_eps_of_rms_norm(dtype):
    x = (1e-3 * normal(dtype, 2, 3)).astype(DTYPES[dtype])
    eps = 2.0**-52 if dtype == "f64" else 2.0**-23
    assert np.array_equal(evenorm.rms_norm(x, 3), evenorm.rms_norm(x, 3, eps=eps))
    assert not np.array_equal(evenorm.rms_norm(x, 3), evenorm.rms_norm(x, 3, eps=1e-5))


def test_4096_gradients_of_1_add_up_to_4096():
    x = normal("bf16", 4096, 64)
    _, _, dbias = evenorm.layer_norm_backward(np.ones_like(x), x, 64)
    assert dbias.dtype == np.float32 and (dbias == 4096).all()


def test_nan_and_infinity_stay_in_their_row():
    x = np.tile(normal("f32", 40), (4, 1))
    x[1, 3], x[2, 39] = np.nan, -np.inf
    y, mean, rstd = evenorm.layer_norm(x, 40, return_stats=True)
    assert np.isnan(y[1:3]).all() and np.isnan(mean[1:3]).all() and np.isnan(rstd[1:3]).all()
    assert np.array_equal(y[0], y[3]) and np.isfinite(y[0]).all()


def test_one_column_and_constant_rows():
    assert (evenorm.layer_norm(np.float32([[3], [1e30]]), 1, [7.0], [0.25], 0) == 0.25).all()
    dx, dweight, dbias = evenorm.layer_norm_backward(np.float32([[1], [2]]), np.float32([[3], [4]]), 1)
    assert dx.tolist() == [[0], [0]] and dweight.tolist() == [0] and dbias.tolist() == [3]
    assert (evenorm.rms_norm(np.zeros((2, 5)), 5, eps=0) == 0).all()

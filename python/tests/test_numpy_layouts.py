"""Results have the same bits in any layout, over any axes, in place, in any batch, and on the command line."""

import itertools
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import evenorm
from numpy_inputs import DTYPES, all_same_bits, bias, normal, same_bits, weight

PROGRAM = pathlib.Path(sys.executable).parent / "evenorm"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [evenorm.layer_norm, evenorm.rms_norm])
def test_any_axes(function, dtype):
    x = normal(dtype, 3, 4, 5, 6)
    for axes in itertools.chain.from_iterable(itertools.combinations(range(4), count) for count in (1, 2, 3, 4)):
        shape = [x.shape[axis] for axis in axes]
        w, b = weight(dtype, *shape), bias(dtype, *shape)
        last = range(-len(axes), 0)
        trailing = function(np.ascontiguousarray(np.moveaxis(x, axes, last)), shape, w, bias=b)
        right = np.moveaxis(trailing, last, axes)
        negative = tuple(axis - 4 for axis in reversed(axes))
        for given in (axes, negative, list(axes), *([axes[0], np.int64(negative[0])] if len(axes) == 1 else [])):
            assert same_bits(function(x, None, w, bias=b, axis=given), right)


def test_statistics_have_the_shape_of_the_other_axes():
    x = normal("f32", 3, 4, 5)
    for axis, shape in [(0, (4, 5)), ((0, 2), (4,)), (-1, (3, 4)), ((1, 2), (3,))]:
        _, mean, rstd = evenorm.layer_norm(x, axis=axis, return_stats=True)
        assert mean.shape == rstd.shape == shape
    _, mean, rstd = evenorm.layer_norm(x, axis=(0, 1, 2), return_stats=True)
    assert isinstance(mean, np.float64) and isinstance(rstd, np.float64)


def layouts_of(x):
    """Copies of x with other strides and addresses."""
    wide = np.zeros((x.shape[0] * 2, x.shape[1] * 3), x.dtype)
    wide[::2, ::3] = x
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[:] = x
    return {
        "strided": wide[::2, ::3],
        "Fortran order": np.asfortranarray(x),
        "reversed": np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
        "at odd addresses": odd,
        "one of three fields": np.stack([x, x, x], axis=-1)[..., 1],
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [17, 1025])
def test_layouts(dtype, cols):
    x, w, b = normal(dtype, 9, cols), weight(dtype, cols), bias(dtype, cols)
    dy = x[::-1].copy()
    right = evenorm.layer_norm(x, cols, w, b)
    gradients = evenorm.layer_norm_backward(dy, x, cols, w)
    read_only = x.copy()
    read_only.flags.writeable = False
    for name, other in {**layouts_of(x), "read-only": read_only}.items():
        assert same_bits(evenorm.layer_norm(other, cols, w[::-1].copy()[::-1], b), right), name
        assert all_same_bits(evenorm.layer_norm_backward(dy, other, cols, w), gradients), name
    for name, out in layouts_of(np.zeros_like(x)).items():
        assert evenorm.layer_norm(x, cols, w, b, out=out) is out
        assert same_bits(out, right), name
    for y in (x.copy(), np.asfortranarray(x)):
        assert evenorm.layer_norm(y, cols, w, b, out=y) is y and same_bits(y, right)


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_of_results(dtype):
    x = normal(dtype, 4, 8)
    y, mean, rstd = evenorm.layer_norm(x, 8, return_stats=True)
    assert y.dtype == x.dtype and mean.dtype == rstd.dtype == np.float64
    dx, dweight, dbias = evenorm.layer_norm_backward(x, x, 8)
    assert dx.dtype == x.dtype and dweight.dtype == dbias.dtype == (np.float64 if dtype == "f64" else np.float32)
    _, dweight, dbias = evenorm.layer_norm_backward(x, x, 8, param_dtype="float16")
    assert dweight.dtype == dbias.dtype == np.float16


def test_new_arrays_have_the_order_of_x():
    x = np.asfortranarray(normal("f32", 5, 6))
    assert evenorm.layer_norm(x, 6).flags.f_contiguous
    assert evenorm.layer_norm(x.T, axis=0).flags.c_contiguous
    assert evenorm.layer_norm(np.broadcast_to(x[0], (3, 6)), 6).flags.c_contiguous


def test_gradients_in_place():
    x, w = normal("f32", 70, 65), weight("f32", 65)
    dy, sums = x[::-1].copy(), np.empty(65, np.float32)
    dx, dweight, _ = evenorm.layer_norm_backward(dy, x, 65, w)
    for place in (0, 1):
        given = [dy.copy(), x.copy()]
        result = evenorm.layer_norm_backward(*given, 65, w, out=(given[place], sums, None))
        assert result[0] is given[place] and same_bits(result[0], dx)
        assert result[1] is sums and same_bits(sums, dweight)


def test_no_rows():
    for shape in [(0, 5), (2, 0, 5)]:
        y, mean, rstd = evenorm.layer_norm(np.zeros(shape, np.float32), 5, return_stats=True)
        assert y.shape == shape and mean.shape == rstd.shape == shape[:-1]
    dx, dweight, dbias = evenorm.layer_norm_backward(np.zeros((0, 3)), np.zeros((0, 3)), 3)
    assert dx.shape == (0, 3) and dweight.tolist() == dbias.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rms", [False, True])
def test_command_line(tmp_path, dtype, rms):
    x, w, b = normal(dtype, 3, 5, 40), weight(dtype, 3, 5), bias(dtype, 3, 5)
    for name, array in {"x": x, "w": w, "b": b}.items():
        np.save(tmp_path / f"{name}.npy", array)
    command = [PROGRAM, "apply", "x.npy", "-o", "y.npy", "--axes", "0,1", "--weight", "w.npy", "--bias", "b.npy",
               "--rstd", "r.npy", *(["--rms"] if rms else [])]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    function = evenorm.rms_norm if rms else evenorm.layer_norm
    results = function(x, None, w, bias=b, eps=1e-5, axis=(0, 1), return_stats=True)
    assert np.load(tmp_path / "y.npy").tobytes() == np.ascontiguousarray(results[0]).tobytes()
    assert np.load(tmp_path / "r.npy").tobytes() == results[-1].tobytes()

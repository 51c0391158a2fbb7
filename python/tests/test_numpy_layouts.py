"""Same bits wherever the elements lie, whichever axes are normalised, in place or not, and from the command line."""

import itertools
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import evenorm
import numpy_inputs as inputs

DTYPES = ["f64", "f32", "bf16", "f16"]
PROGRAM = pathlib.Path(sys.executable).parent / "evenorm"


def same_bits(a, b):
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def tensor(dtype, *shape):
    return inputs.row("normal", dtype, int(np.prod(shape)), 11).reshape(shape)


def by_moving_axes(function, x, axes, weight, bias):
    """The norm over any axes by way of trailing ones."""
    axes = sorted(axis % x.ndim for axis in axes)
    last = range(-len(axes), 0)
    moved = np.ascontiguousarray(np.moveaxis(x, axes, last))
    y = function(moved, [x.shape[axis] for axis in axes], weight, bias=bias)
    return np.moveaxis(y, last, axes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [evenorm.layer_norm, evenorm.rms_norm])
def test_any_axes(function, dtype):
    x = tensor(dtype, 3, 4, 5, 6)
    for count in (1, 2, 3, 4):
        for axes in itertools.combinations(range(4), count):
            shape = [x.shape[axis] for axis in axes]
            size = int(np.prod(shape))
            weight, bias = inputs.weight(dtype, size).reshape(shape), inputs.bias(dtype, size).reshape(shape)
            right = by_moving_axes(function, x, axes, weight, bias)
            negative = tuple(axis - 4 for axis in reversed(axes))
            for told in (axes, negative, list(axes), *([axes[0], np.int64(negative[0])] if count == 1 else [])):
                assert same_bits(function(x, None, weight, bias=bias, axis=told), right)


def test_statistics_have_the_other_axes_shape():
    x = tensor("f32", 3, 4, 5)
    for axis, shape in [(0, (4, 5)), ((0, 2), (4,)), (-1, (3, 4)), ((1, 2), (3,))]:
        _, mean, rstd = evenorm.layer_norm(x, axis=axis, return_stats=True)
        assert mean.shape == rstd.shape == shape
    _, mean, rstd = evenorm.layer_norm(x, axis=(0, 1, 2), return_stats=True)
    assert isinstance(mean, np.float64) and isinstance(rstd, np.float64)


def layouts_of(x):
    """The same values in other places."""
    wide = np.zeros((x.shape[0] * 2, x.shape[1] * 3), x.dtype)
    wide[::2, ::3] = x
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[:] = x
    yield "strided", wide[::2, ::3]
    yield "fortran", np.asfortranarray(x)
    yield "reversed", np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    yield "at odd addresses", odd
    yield "one of three fields", np.stack([x, x, x], axis=-1)[..., 1]
    read_only = x.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [17, 1025])
def test_layouts(dtype, cols):
    x, weight, bias = tensor(dtype, 9, cols), inputs.weight(dtype, cols), inputs.bias(dtype, cols)
    dy = x[::-1].copy()
    right = evenorm.layer_norm(x, cols, weight, bias)
    gradients = evenorm.layer_norm_backward(dy, x, cols, weight)
    for name, other in layouts_of(x):
        assert same_bits(evenorm.layer_norm(other, cols, weight[::-1].copy()[::-1], bias), right), name
        assert all(map(same_bits, evenorm.layer_norm_backward(dy, other, cols, weight), gradients)), name
    for name, out in layouts_of(np.zeros_like(x)):
        if name != "read-only":
            assert evenorm.layer_norm(x, cols, weight, bias, out=out) is out
            assert same_bits(out, right), name
    y = x.copy()
    assert evenorm.layer_norm(y, cols, weight, bias, out=y) is y and same_bits(y, right)
    y = np.asfortranarray(x)
    assert evenorm.layer_norm(y, cols, weight, bias, out=y) is y and same_bits(y, right)


def test_new_arrays_lie_as_x_does():
    x = np.asfortranarray(tensor("f32", 5, 6))
    assert evenorm.layer_norm(x, 6).flags.f_contiguous
    assert evenorm.layer_norm(x.T, axis=0).flags.c_contiguous
    assert evenorm.layer_norm(np.broadcast_to(x[0], (3, 6)), 6).flags.c_contiguous


def test_zero_strides():
    row = tensor("f32", 33)
    x = np.broadcast_to(row, (7, 33))
    assert same_bits(evenorm.layer_norm(x, 33), evenorm.layer_norm(x.copy(), 33))
    same = np.broadcast_to(row[:, None], (33, 8))
    assert (evenorm.layer_norm(same, 8, None, np.full(8, 2, np.float32)) == 2).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batches(dtype):
    x, weight = tensor(dtype, 600, 257), inputs.weight(dtype, 257)
    right = evenorm.layer_norm(x, 257, weight)
    gradients = evenorm.layer_norm_backward(x[::-1], x, 257, weight)
    long = tensor(dtype, 1, 200000)
    try:
        for threads in (1, 2, 7, 0):
            evenorm.set_num_threads(threads)
            assert same_bits(evenorm.layer_norm(x, 257, weight), right)
            assert all(map(same_bits, evenorm.layer_norm_backward(x[::-1], x, 257, weight), gradients))
            assert same_bits(evenorm.layer_norm(np.repeat(long, 2, 0), axis=1)[1:], evenorm.layer_norm(long, axis=1))
    finally:
        evenorm.set_num_threads(1)
    assert all(same_bits(evenorm.layer_norm(x[r], 257, weight), right[r]) for r in range(0, 600, 37))


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_given_back(dtype):
    x, weight = tensor(dtype, 70, 65), inputs.weight(dtype, 65)
    dy = x[::-1].copy()
    _, mean, rstd = evenorm.layer_norm(x, 65, return_stats=True)
    given = evenorm.layer_norm_backward(dy, x, 65, weight, mean=mean, rstd=rstd)
    assert all(map(same_bits, given, evenorm.layer_norm_backward(dy, x, 65, weight)))
    _, rstd = evenorm.rms_norm(x, 65, return_stats=True)
    given = evenorm.rms_norm_backward(dy, x, 65, weight, rstd=rstd)
    assert all(map(same_bits, given, evenorm.rms_norm_backward(dy, x, 65, weight)))


def test_gradients_in_place_and_accumulated():
    x, weight = tensor("f32", 70, 65), inputs.weight("f32", 65)
    dy = x[::-1].copy()
    dx, dweight, dbias = evenorm.layer_norm_backward(dy, x, 65, weight)
    for place in (dy.copy(), x.copy()):
        one, other = (place, x) if np.array_equal(place, dy) else (dy, place)
        result = evenorm.layer_norm_backward(one, other, 65, weight, out=(place, None, None))
        assert result[0] is place and same_bits(place, dx) and same_bits(result[1], dweight)
    held = (None, np.zeros(65), np.zeros(65))
    for _ in range(2):
        result = evenorm.layer_norm_backward(dy, x, 65, weight, accumulate=True, out=held)
    assert result[1] is held[1] and np.array_equal((result[1] / 2).astype(np.float32), dweight)
    assert np.array_equal((held[2] / 2).astype(np.float32), dbias)
    dtypes = [g.dtype for g in evenorm.layer_norm_backward(dy, x, 65, weight, param_dtype="float16")]
    assert dtypes == [np.float32, np.float16, np.float16]


def test_nothing_to_do():
    for shape in [(0, 5), (2, 0, 5)]:
        y, mean, rstd = evenorm.layer_norm(np.zeros(shape, np.float32), 5, return_stats=True)
        assert y.shape == shape and mean.shape == rstd.shape == shape[:-1]
    dx, dweight, dbias = evenorm.layer_norm_backward(np.zeros((0, 3)), np.zeros((0, 3)), 3)
    assert dx.shape == (0, 3) and dweight.tolist() == dbias.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rms", [False, True])
def test_command_line(tmp_path, dtype, rms):
    x, weight, bias = tensor(dtype, 3, 5, 40), inputs.weight(dtype, 15), inputs.bias(dtype, 15)
    weight, bias = weight.reshape(3, 5), bias.reshape(3, 5)
    for name, array in [("x", x), ("w", weight), ("b", bias)]:
        np.save(tmp_path / f"{name}.npy", array)
    command = [PROGRAM, "apply", "x.npy", "-o", "y.npy", "--axes", "0,1", "--weight", "w.npy", "--bias", "b.npy",
               "--rstd", "r.npy", *(["--rms"] if rms else [])]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    function = evenorm.rms_norm if rms else evenorm.layer_norm
    results = function(x, None, weight, bias=bias, eps=1e-5, axis=(0, 1), return_stats=True)
    assert np.load(tmp_path / "y.npy").tobytes() == np.ascontiguousarray(results[0]).tobytes()
    assert np.load(tmp_path / "r.npy").tobytes() == results[-1].tobytes()

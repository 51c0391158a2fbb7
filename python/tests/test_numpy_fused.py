"""The fused forms give the bits of their separate steps."""

import numpy as np
import pytest

import evenorm
from numpy_inputs import DTYPES, bias, normal, same_bits, weight

KINDS = pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])


@pytest.mark.parametrize("dtype", DTYPES)
@KINDS
def test_add(kind, dtype):
    norm, add_norm = getattr(evenorm, kind), getattr(evenorm, f"add_{kind}")
    x, residual, w, b = normal(dtype, 20, 33), normal(dtype, 20, 33, seed=4), weight(dtype, 33), bias(dtype, 33)
    total = x + residual  # NumPy rounds the sum once too
    right = norm(total, 33, w, bias=b)
    out = (np.empty_like(x), residual.copy())
    for y, found in (
        add_norm(x, residual, 33, w, bias=b),
        add_norm(x, residual, axis=-1, weight=w, bias=b, residual_scale=1),
        add_norm(x, out[1], 33, w, bias=b, out=out),
        out,
    ):
        assert same_bits(found, total) and same_bits(y, right)
    assert add_norm(x, residual, 33, out=out)[1] is out[1]
    row = x[0].copy()
    _, found = add_norm(np.broadcast_to(row, (20, 33)), residual, 33)
    assert same_bits(found, row + residual)


def test_residual_scale_is_one_rounding():
    x, residual = normal("f32", 9, 100), normal("f32", 9, 100, seed=4)
    _, total = evenorm.add_layer_norm(x, residual, 100, residual_scale=0.3)
    # The product of two float32 is exact in float64. Its rounded sum with x differs only in ties.
    right = residual.astype(np.float64) * np.float64(np.float32(0.3)) + x.astype(np.float64)
    assert np.array_equal(total, right.astype(np.float32))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@KINDS
def test_int8(kind, dtype):
    norm, norm_int8 = getattr(evenorm, kind), getattr(evenorm, f"{kind}_int8")
    x, w = normal(dtype, 12, 65), weight(dtype, 65)
    x[3] = 0
    unrounded = norm(x, 65, w, eps=1e-5, out=np.empty(x.shape, np.float32))
    largest = np.abs(unrounded).max(axis=1)
    q, scale = norm_int8(x, 65, w, eps=1e-5)
    assert q.dtype == np.int8 and q.shape == x.shape and scale.dtype == np.float32 and scale.shape == (12,)
    assert np.array_equal(scale, largest / np.float32(127)) and scale[3] == 0 and (q[3] == 0).all()

    def quantised(factor):
        return np.clip(np.rint(unrounded * factor), -127, 127).astype(np.int8)

    largest[3] = 1  # any factor gives 0 for the row of zeros
    assert np.array_equal(q, quantised((np.float32(127) / largest)[:, None]))
    given, used = norm_int8(x, 65, w, eps=1e-5, scale=0.01, out=q)
    assert given is q and used == np.float32(0.01)
    assert np.array_equal(q, quantised(np.float32(1) / np.float32(0.01)))


def test_gradient_of_the_sum():
    x, dy, dsum = (normal("f32", 20, 33, seed=seed) for seed in (1, 2, 3))
    w = weight("f32", 33)
    dx, *_ = evenorm.layer_norm_backward(dy, x, 33, w)
    with_sum, *_ = evenorm.layer_norm_backward(dy, x, 33, w, dsum=dsum)
    assert np.array_equal(with_sum, dx + dsum)


def test_rows_that_are_not_contiguous_are_refused():
    x = np.zeros((4, 6), np.float32)
    for call in (lambda: evenorm.add_layer_norm(x, x, axis=0), lambda: evenorm.layer_norm_int8(x, axis=0)):
        with pytest.raises(ValueError, match=r"the elements of a row should lie side by side where (residual|y)"):
            call()

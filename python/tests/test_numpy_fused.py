"""The fused forms give the bits of their steps one by one."""

import numpy as np
import pytest
from test_numpy_layouts import DTYPES, same_bits, tensor

import evenorm
import numpy_inputs as inputs

KINDS = [(evenorm.layer_norm, evenorm.add_layer_norm, evenorm.layer_norm_pair, evenorm.layer_norm_int8),
         (evenorm.rms_norm, evenorm.add_rms_norm, evenorm.rms_norm_pair, evenorm.rms_norm_int8)]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm,add_norm", [kind[:2] for kind in KINDS])
def test_add(norm, add_norm, dtype):
    x, residual = tensor(dtype, 20, 33), tensor(dtype, 20, 33)[::-1].copy()
    weight, bias = inputs.weight(dtype, 33), inputs.bias(dtype, 33)
    total = x + residual  # one rounding, in NumPy's arithmetic too
    right = norm(total, 33, weight, bias=bias)
    y, found = add_norm(x, residual, 33, weight, bias=bias)
    assert same_bits(found, total) and same_bits(y, right)
    y, found = add_norm(x, residual, axis=-1, weight=weight, bias=bias, residual_scale=1)
    assert same_bits(found, total) and same_bits(y, right)
    out = (np.empty_like(x), residual.copy())
    result = add_norm(x, out[1], 33, weight, bias=bias, out=out)
    assert result[0] is out[0] and result[1] is out[1]
    assert same_bits(out[0], right) and same_bits(out[1], total)


def test_residual_scale_is_one_rounding():
    x, residual = tensor("f32", 9, 100), tensor("f32", 9, 100)[::-1].copy()
    _, total = evenorm.add_layer_norm(x, residual, 100, residual_scale=0.3)
    scale = np.float64(np.float32(0.3))
    # The product of two float32 is exact in float64; its sum with x then misses a rounding only in ties.
    right = (residual.astype(np.float64) * scale + x.astype(np.float64)).astype(np.float32)
    assert np.array_equal(total, right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm,pair", [(kind[0], kind[2]) for kind in KINDS])
def test_pair(norm, pair, dtype):
    x = tensor(dtype, 6, 5, 40)
    weights = [inputs.weight(dtype, 5, seed) for seed in (2, 7)]
    for axis in (1, (1,)):
        y, y2 = pair(x, None, weights[0], weight2=weights[1], axis=axis)
        assert same_bits(y, norm(x, None, weights[0], axis=axis))
        assert same_bits(y2, norm(x, None, weights[1], axis=axis))
    y = x.copy()
    result = pair(y, None, weights[0], weight2=weights[1], axis=1, out=(y, None))
    assert result[0] is y and same_bits(y, norm(x, None, weights[0], axis=1))
    assert same_bits(result[1], norm(x, None, weights[1], axis=1))


def test_pair_with_biases():
    x, bias, bias2 = tensor("f32", 4, 8), inputs.bias("f32", 8), inputs.bias("f32", 8, 9)
    y, y2 = evenorm.layer_norm_pair(x, 8, None, bias, None, bias2)
    assert same_bits(y, evenorm.layer_norm(x, 8, None, bias)) and same_bits(y2, evenorm.layer_norm(x, 8, None, bias2))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("norm,norm_int8", [(kind[0], kind[3]) for kind in KINDS])
def test_int8(norm, norm_int8, dtype):
    x, weight = tensor(dtype, 12, 65), inputs.weight(dtype, 65)
    x[3] = 0
    unrounded = norm(x, 65, weight, eps=1e-5, out=np.empty(x.shape, np.float32))
    largest = np.abs(unrounded).max(axis=1)
    q, scale = norm_int8(x, 65, weight, eps=1e-5)
    assert q.dtype == np.int8 and q.shape == x.shape and scale.dtype == np.float32 and scale.shape == (12,)
    assert np.array_equal(scale, largest / np.float32(127)) and scale[3] == 0 and (q[3] == 0).all()
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(largest == 0, np.float32(0), np.float32(127) / largest)
    assert np.array_equal(q, np.clip(np.rint(unrounded * factor[:, None]), -127, 127).astype(np.int8))
    given, told = norm_int8(x, 65, weight, eps=1e-5, scale=0.01, out=q)
    assert given is q and told == np.float32(0.01)
    factor = np.float32(1) / np.float32(0.01)
    assert np.array_equal(q, np.clip(np.rint(unrounded * factor), -127, 127).astype(np.int8))


def test_the_same_row_added_to_all():
    x, residual = tensor("f32", 33), tensor("f32", 9, 33)
    y, total = evenorm.add_layer_norm(np.broadcast_to(x, (9, 33)), residual, 33)
    assert same_bits(total, x + residual) and same_bits(y, evenorm.layer_norm(total, 33))


def test_sum_s_gradient():
    x, weight = tensor("f32", 20, 33), inputs.weight("f32", 33)
    dy, dsum = x[::-1].copy(), tensor("f32", 20, 33)[:, ::-1].copy()
    dx, *_ = evenorm.layer_norm_backward(dy, x, 33, weight)
    with_sum, *_ = evenorm.layer_norm_backward(dy, x, 33, weight, dsum=dsum)
    assert np.array_equal(with_sum, dx + dsum)


def test_rows_that_do_not_lie_together_are_refused():
    x = np.zeros((4, 6), np.float32)
    for call in (lambda: evenorm.add_layer_norm(x, x, axis=0), lambda: evenorm.layer_norm_int8(x, axis=0)):
        with pytest.raises(ValueError, match=r"the elements of a row should lie side by side where (residual|y)"):
            call()

"""Norms whose normalised axis is split: row_moments, join, moments=. The bits of the whole where cuts fall on 1024."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

import evenorm

TYPES = (np.float32, np.float64, np.float16, bfloat16)
COLS = 5 * 1024 + 77


def rows(dtype, seed=0, shape=(3, COLS)):
    return np.random.default_rng(seed).normal(3, 2, shape).astype(dtype)


def norm(rms, x, **options):
    return (evenorm.rms_norm if rms else evenorm.layer_norm)(x, axis=-1, **options)


def split(x, sizes, rms, weight=None, cuts_of=np.split):
    """What processes with so many columns each make of x together."""
    wide = x.dtype == np.float64
    cuts = np.cumsum(sizes)[:-1]
    mine = cuts_of(x, cuts, axis=1)
    parts = np.concatenate([evenorm.row_moments(one, axis=1, rms=rms) for one in mine if one.shape[1]], axis=1)
    whole = evenorm.join(parts, rms=rms, wide=wide)
    weights = [None] * len(mine) if weight is None else np.split(weight, cuts)
    return np.concatenate(
        [norm(rms, one, weight=of, moments=whole) for one, of in zip(mine, weights, strict=True) if one.shape[1]],
        axis=1,
    )


@pytest.mark.parametrize("rms", (False, True))
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", ([COLS], [1024, COLS - 1024], [2048, 1024, COLS - 3072], [1024] * 5 + [77]))
def test_cuts_at_1024_give_the_bits_of_the_whole(rms, dtype, sizes):
    x, weight = rows(dtype), rows(np.float32, 1, COLS)
    if dtype == np.float64:
        weight = weight.astype(np.float64)
    assert split(x, sizes, rms, weight).tobytes() == norm(rms, x, weight=weight).tobytes()


@pytest.mark.parametrize("rms", (False, True))
@pytest.mark.parametrize("sizes", ([1, COLS - 1], [1000, 0, 2000, COLS - 3000], [77] * 67 + [COLS - 77 * 67]))
def test_other_cuts_stay_close(rms, sizes):
    x = rows(np.float32)
    np.testing.assert_allclose(split(x, sizes, rms), norm(rms, x), rtol=0, atol=2e-6)


def test_moments_are_those_of_the_columns():
    x = rows(np.float64, shape=(2, 3, 1500))
    parts = evenorm.row_moments(x, axis=-1)
    assert parts.dtype == evenorm.MOMENTS and parts.shape == (2, 3, 2)
    assert parts["count"].tolist() == [[[1024, 476]] * 3] * 2
    np.testing.assert_allclose(parts["mean_hi"][..., 1], x[..., 1024:].mean(-1), rtol=1e-14)
    whole = evenorm.join(parts, wide=True)
    assert whole.shape == (2, 3)
    np.testing.assert_allclose(whole["m2_hi"], x.var(-1) * 1500, rtol=1e-13)
    squares = evenorm.join(evenorm.row_moments(x, axis=-1, rms=True), rms=True, wide=True)
    np.testing.assert_allclose(squares["m2_hi"], (x * x).sum(-1), rtol=1e-13)
    assert not squares["mean_hi"].any()


def test_any_axes_threads_and_statistics():
    x = rows(np.float32, shape=(4, 50, 60))
    whole = evenorm.join(evenorm.row_moments(x, axis=(0, 2)))
    y, mean, rstd = evenorm.layer_norm(x, axis=(0, 2), moments=whole, return_stats=True)
    expected = evenorm.layer_norm(x, axis=(0, 2), return_stats=True)
    assert (y.tobytes(), mean.tobytes(), rstd.tobytes()) == tuple(one.tobytes() for one in expected)
    evenorm.set_num_threads(2)
    try:
        assert evenorm.row_moments(x, axis=(0, 2)).tobytes() == evenorm.row_moments(x, axis=(0, 2)).tobytes()
        assert evenorm.join(evenorm.row_moments(x, axis=(0, 2))).tobytes() == whole.tobytes()
    finally:
        evenorm.set_num_threads(1)


def test_large_numbers_keep_their_exponent():
    x = rows(np.float64) * 1e300
    parts = evenorm.row_moments(x, axis=1)
    assert (parts["exponent"] != 0).all()
    y = evenorm.layer_norm(x, axis=1, moments=evenorm.join(parts, wide=True))
    assert y.tobytes() == evenorm.layer_norm(x, axis=1).tobytes()


def test_given_moments_are_taken_as_they_are():
    x = rows(np.float32)
    whole = evenorm.join(evenorm.row_moments(x, axis=1))
    whole["mean_hi"] += 1
    assert np.abs(evenorm.layer_norm(x, axis=1) - evenorm.layer_norm(x, axis=1, moments=whole)).max() > 0.1
    sent = np.frombuffer(whole.tobytes(), evenorm.MOMENTS)  # as bytes, to another process
    assert (
        evenorm.layer_norm(x, axis=1, moments=sent).tobytes() == evenorm.layer_norm(x, axis=1, moments=whole).tobytes()
    )
    unaligned = np.frombuffer(b"." + whole.tobytes(), evenorm.MOMENTS, offset=1)
    assert (
        evenorm.layer_norm(x, axis=1, moments=unaligned).tobytes()
        == evenorm.layer_norm(x, axis=1, moments=sent).tobytes()
    )
    strided = np.repeat(whole, 2)[::2]
    assert (
        evenorm.layer_norm(x, axis=1, moments=strided).tobytes()
        == evenorm.layer_norm(x, axis=1, moments=sent).tobytes()
    )


def test_one_row_and_no_rows():
    x = rows(np.float32)[0]
    whole = evenorm.join(evenorm.row_moments(x, axis=0))
    assert whole.shape == () and evenorm.layer_norm(x, axis=0, moments=whole).tobytes() == norm(False, x).tobytes()
    empty = np.empty((0, 5), np.float32)
    assert evenorm.row_moments(empty, axis=1).shape == (0, 1)
    assert evenorm.layer_norm(empty, axis=1, moments=evenorm.join(evenorm.row_moments(empty, axis=1))).shape == (0, 5)


def test_wrong_arguments_are_named():
    x = rows(np.float32)
    parts = evenorm.row_moments(x, axis=1)
    whole = evenorm.join(parts)
    with pytest.raises(ValueError, match=r"moments has shape \(2,\), but it should have \(3,\)"):
        evenorm.layer_norm(x, axis=1, moments=whole[:2])
    with pytest.raises(ValueError, match=r"moments has shape \(3, 6\), but it should have \(3,\)"):
        evenorm.layer_norm(x, axis=1, moments=parts)
    for wrong in (np.zeros(3), [1.0, 2.0, 3.0], whole["count"]):
        with pytest.raises(TypeError, match=r"moments has dtype float64, but it should have evenorm.MOMENTS"):
            evenorm.layer_norm(x, axis=1, moments=wrong)
    with pytest.raises(TypeError, match=r"parts has dtype float64, but it should have evenorm.MOMENTS"):
        evenorm.join(np.zeros(3))
    with pytest.raises(ValueError, match="parts has no axes"):
        evenorm.join(whole[0])
    with pytest.raises(ValueError, match="part"):
        evenorm.join(parts[:, :0])
    with pytest.raises(TypeError, match="normalized_shape or axis is missing"):
        evenorm.row_moments(x)
    for moments in ({}, {"moments": whole}):
        with pytest.raises(ValueError, match="axis") as told:
            evenorm.layer_norm(x, axis=5, **moments)
        assert "moments" not in str(told.value)
    with pytest.raises(ValueError, match="axis"):
        evenorm.row_moments(x, axis=2)
    with pytest.raises(ValueError, match="axis"):
        evenorm.row_moments(np.broadcast_to(np.float32(1), (2**30, 2**20)), axis=7)
    with pytest.raises(TypeError, match="moments is a masked array"):
        evenorm.layer_norm(x, axis=1, moments=np.ma.array(whole))
    with pytest.raises(TypeError, match="x has dtype int64"):
        evenorm.row_moments(np.arange(4), axis=0)

"""What is refused, with which exception, in which words; and that nothing is written then."""

import array
import collections
import re

import numpy as np
import pytest

import evenorm

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
FLOATS = "float64, float32, float16 or bfloat16"
VALUE_ERRORS = [
    (dict(normalized_shape=5), "x has shape (2, 3, 4), but it should end in normalized_shape (5)"),
    (dict(normalized_shape=(4, 3)), "x has shape (2, 3, 4), but it should end in normalized_shape (4, 3)"),
    (dict(normalized_shape=()), "normalized_shape is (), but it or axis should name at least one axis"),
    (dict(axis=()), "normalized_shape is (), but it or axis should name at least one axis"),
    (dict(axis=3), "axis is (3), but x has 3 axes"),
    (dict(axis=-4), "axis is (-4), but x has 3 axes"),
    (dict(axis=(1, -2)), "axis is (1, -2), which names an axis twice"),
    (dict(axis=[0] * 65), "axis has 65 numbers, but at most 64 axes are supported"),
    (dict(axis=-1, weight=np.ones(5)), "weight has shape (5), but the axes normalised have shape (4)"),
    (dict(normalized_shape=(3, 4), weight=np.ones(12)), "weight has shape (12), but normalized_shape is (3, 4)"),
    (dict(normalized_shape=4, bias=np.ones((4, 1))), "bias has shape (4, 1), but normalized_shape is (4)"),
    (dict(normalized_shape=4, eps=-1e-5), "eps is -1e-05, but it should be finite and at least 0"),
    (dict(normalized_shape=4, eps=float("nan")), "eps is nan, but it should be finite and at least 0"),
    (dict(axis=2**63), "axis has an integer of more than 64 bits, but it should be within -2**63 .. 2**63 - 1"),
    (
        dict(axis=(0, -(2**63) - 1)),
        "axis has an integer of more than 64 bits, but it should be within -2**63 .. 2**63 - 1",
    ),
    (dict(axis=2**63 - 1, return_stats=True), "axis is (9223372036854775807), but x has 3 axes"),
    (dict(axis=-(2**63), return_stats=True), "axis is (-9223372036854775808), but x has 3 axes"),
    (
        dict(normalized_shape=2**70),
        "normalized_shape has an integer of more than 64 bits, but it should be within -2**63 .. 2**63 - 1",
    ),
    (
        dict(normalized_shape=[2, 10**5000]),
        "normalized_shape has an integer of more than 64 bits, but it should be within -2**63 .. 2**63 - 1",
    ),
    (
        dict(normalized_shape=2**63 - 1),
        "x has shape (2, 3, 4), but it should end in normalized_shape (9223372036854775807)",
    ),
    (dict(normalized_shape=4, eps=2**2000), "eps is beyond what float64 holds, but it should be finite"),
    (dict(normalized_shape=4, eps=-(10**5000)), "eps is beyond what float64 holds, but it should be finite"),
    (dict(normalized_shape=4, zero_centered=True), "weight is absent, but zero_centered needs one"),
    (dict(normalized_shape=4, out=np.ones((3, 4), np.float32)), "out has shape (3, 4), but x has (2, 3, 4)"),
    (dict(normalized_shape=4, out=np.broadcast_to(X[0], X.shape)), "out is read-only"),
]
TYPE_ERRORS = [
    (dict(), "normalized_shape or axis is missing: one of them should be given"),
    (dict(normalized_shape=4, axis=-1), "normalized_shape and axis are given, but only one of them should be"),
    (dict(normalized_shape=4.0), "normalized_shape is of type float, but it should be an integer or a sequence of integers"),
    (dict(axis="last"), "axis is of type str, but it should be an integer or a sequence of integers"),
    (dict(axis=(0, 1.5)), "axis is of type float, but it should be an integer or a sequence of integers"),
    (dict(normalized_shape=b"8"), "normalized_shape is of type bytes, but it should be an integer or a sequence of integers"),
    (dict(normalized_shape=bytearray(b"4")), "normalized_shape is of type bytearray, but it should be an integer or a sequence of integers"),
    (dict(axis=memoryview(b"\0")), "axis is of type memoryview, but it should be an integer or a sequence of integers"),
    (dict(normalized_shape={4}), "normalized_shape is of type set, but it should be an integer or a sequence of integers"),
    (dict(axis=frozenset([0])), "axis is of type frozenset, but it should be an integer or a sequence of integers"),
    (dict(axis={0: 1}), "axis is of type dict, but it should be an integer or a sequence of integers"),
    (dict(axis={0: 1}.keys()), "axis is of type dict_keys, but it should be an integer or a sequence of integers"),
    (dict(axis=iter([0])), "axis is of type list_iterator, but it should be an integer or a sequence of integers"),
    (dict(normalized_shape=np.array([4.0])), "normalized_shape is of type float64, but it should be an integer or a sequence of integers"),
    (dict(normalized_shape=np.array([[4]])), "normalized_shape is of type ndarray, but it should be an integer or a sequence of integers"),
    (dict(axis=(0, "1")), "axis is of type str, but it should be an integer or a sequence of integers"),
    (dict(normalized_shape=4, eps="1e-5"), "eps is of type str, but it should be a number"),
    (dict(normalized_shape=4, eps=None), "eps is None, but it should be a number"),
    (dict(normalized_shape=4, eps=1j), "eps is of type complex, but it should be a number"),
    (dict(normalized_shape=4, weight=np.ones(4, int)), f"weight has dtype int64, but it should have {FLOATS}"),
    (dict(normalized_shape=4, bias=np.ones(4, bool)), f"bias has dtype bool, but it should have {FLOATS}"),
    (dict(normalized_shape=4, weight="ones"),
     "weight is of type str, but it should be an array (of NumPy, or with DLPack or the buffer protocol) or a sequence of numbers"),
    (dict(normalized_shape=4, out=[0.0]), "out is of type list, but it should be an array that can be written"),
    (dict(normalized_shape=4, out=np.ones(X.shape, np.int8)), f"out has dtype int8, but it should have {FLOATS}"),
    (dict(normalized_shape=4, out=np.ones(X.shape, np.int32)), f"out has dtype int32, but it should have {FLOATS}"),
]  # fmt: skip


def names(cases):
    return [message[:40] for _, message in cases]


@pytest.mark.parametrize("arguments,message", VALUE_ERRORS, ids=names(VALUE_ERRORS))
def test_values(arguments, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        evenorm.layer_norm(X, **arguments)


@pytest.mark.parametrize("arguments,message", TYPE_ERRORS, ids=names(TYPE_ERRORS))
def test_types(arguments, message):
    with pytest.raises(TypeError, match="^" + re.escape(message) + "$"):
        evenorm.layer_norm(X, **arguments)


@pytest.mark.parametrize("dtype", [int, np.uint8, np.int8, bool, complex, np.longdouble, object, "S4", "M8[s]"])
def test_x_of_other_types(dtype):
    with pytest.raises(TypeError, match=f"^x has dtype .*, but it should have {FLOATS}$"):
        evenorm.layer_norm(np.zeros((2, 4), dtype), 4)


@pytest.mark.parametrize("x", [None, {}, "abc", object()])
def test_x_that_is_no_array(x):
    with pytest.raises(TypeError, match="^x is .*, but it should be an array"):
        evenorm.layer_norm(x, 4)


def test_shapes_in_sequences_of_any_kind():
    right = evenorm.layer_norm(X, (3, 4))
    kinds = [list, np.array, np.int8, collections.deque, lambda sizes: array.array("q", sizes)]
    kinds += [lambda sizes: [np.int64(size) for size in sizes], lambda sizes: np.array(sizes, np.uint8)[::1]]
    for kind in kinds:
        assert np.array_equal(evenorm.layer_norm(X, kind((3, 4))), right)
        assert np.array_equal(evenorm.layer_norm(X, axis=kind((1, 2))), right)
    right = evenorm.layer_norm(X, 4)
    for four in (np.array([4]), np.array(4), np.int16(4), (4,), range(4, 5)):
        assert np.array_equal(evenorm.layer_norm(X, four), right)


def test_eps_none_is_rms_norms_alone():
    assert np.array_equal(evenorm.rms_norm(X, 4, eps=None), evenorm.rms_norm(X, 4, eps=2.0**-23))
    evenorm.add_rms_norm(X, X, 4, eps=None), evenorm.rms_norm_backward(X, X, 4, eps=None)
    calls = [
        lambda: evenorm.layer_norm(X, 4, eps=None),
        lambda: evenorm.layer_norm_backward(X, X, 4, eps=None),
        lambda: evenorm.add_layer_norm(X, X, 4, eps=None),
        lambda: evenorm.layer_norm_pair(X, 4, eps=None),
        lambda: evenorm.layer_norm_int8(X, 4, eps=None),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="^eps is None, but it should be a number$"):
            call()


def test_byte_order():
    for dtype in (">f4", ">f8", ">f2"):
        with pytest.raises(
            TypeError, match=f"^x has dtype {dtype}, which is not in native byte order; convert it: x.astype"
        ):
            evenorm.layer_norm(X.astype(dtype), 4)
    x = X.astype(">f4")
    assert np.array_equal(evenorm.layer_norm(x.astype(x.dtype.newbyteorder("=")), 4), evenorm.layer_norm(X, 4))
    assert np.array_equal(evenorm.layer_norm(X.astype("<f4"), 4), evenorm.layer_norm(X, 4))


def test_masked_arrays():
    with pytest.raises(TypeError, match="^x is a masked array; fill it first"):
        evenorm.layer_norm(np.ma.masked_array(X, X > 3), 4)


def test_strides_that_are_no_multiples_of_an_element():
    records = np.zeros(5, dtype=[("flag", np.int8), ("value", np.float32)])
    with pytest.raises(ValueError, match="^x has a stride of 5 bytes, but strides should be multiples of the 4 bytes"):
        evenorm.layer_norm(records["value"], 5)


def test_overlap_is_refused_and_nothing_written():
    memory = np.arange(40, dtype=np.float32)
    x, out = memory[:32].reshape(4, 8), memory[4:36].reshape(4, 8)
    before = memory.copy()
    with pytest.raises(ValueError, match="^out may overlap x$"):
        evenorm.layer_norm(x, 8, out=out)
    with pytest.raises(ValueError, match="^out may overlap weight$"):
        evenorm.layer_norm(X[0, :2], 4, memory[4:8], out=memory[:8].reshape(2, 4))
    with pytest.raises(ValueError, match="^out may overlap itself$"):
        evenorm.layer_norm(x, 8, out=np.lib.stride_tricks.as_strided(memory, (4, 8), (4, 4)))
    assert np.array_equal(memory, before)
    evenorm.layer_norm(memory.reshape(5, 8)[:, ::2], 4, out=memory.reshape(5, 8)[:, 1::2])


def test_backward():
    dy = np.ones_like(X)
    cases = [
        (ValueError, dict(dy=dy[0]), "dy has shape (3, 4), but x has (2, 3, 4)"),
        (ValueError, dict(mean=np.zeros((2, 3))), "mean is given, but rstd is absent"),
        (ValueError, dict(mean=np.zeros(2), rstd=np.zeros((2, 3))),
         "mean has shape (2), but x has rows of shape (2, 3)"),
        (ValueError, dict(mean=np.zeros((2, 3), np.float32), rstd=np.zeros((2, 3), np.float32)),
         "mean has dtype f32, but the backward pass needs f64"),
        (ValueError, dict(accumulate=True), "accumulate is given, but out has no dweight and dbias to add to"),
        (TypeError, dict(out=np.empty_like(X)),
         "out is of type ndarray, but it should be a tuple (dx, dweight, dbias), where any may be None"),
        (TypeError, dict(param_dtype=int), f"param_dtype is int64, but it should be {FLOATS}"),
        (TypeError, dict(dy=dy.astype(int)), f"dy has dtype int64, but it should have {FLOATS}"),
    ]  # fmt: skip
    for error, arguments, message in cases:
        with pytest.raises(error) as caught:
            evenorm.layer_norm_backward(**{"dy": dy, "x": X, "normalized_shape": 4, **arguments})
        assert str(caught.value) == message


def test_fused():
    cases = [
        (ValueError, evenorm.add_layer_norm, dict(residual=X[0]), "residual has shape (3, 4), but x has (2, 3, 4)"),
        (ValueError, evenorm.add_layer_norm, dict(residual=X, residual_scale=float("inf")),
         "residual_scale is inf, but it should be finite in f32"),
        (TypeError, evenorm.add_layer_norm, dict(residual=None),
         "residual is None, but it should be an array (of NumPy, or with DLPack or the buffer protocol) or a sequence of numbers"),
        (TypeError, evenorm.add_layer_norm, dict(residual=X, out=X.copy()),
         "out is of type ndarray, but it should be a tuple (y, sum), where either may be None"),
        (ValueError, evenorm.add_layer_norm, dict(residual=X, residual_scale=10**400),
         "residual_scale is beyond what float64 holds, but it should be finite"),
        (ValueError, evenorm.layer_norm_int8, dict(scale=-(10**400)), "scale is beyond what float64 holds, but it should be finite"),
        (ValueError, evenorm.layer_norm_int8, dict(scale=0), "scale is 0, but it should be a normal f32 above 0"),
        (ValueError, evenorm.layer_norm_int8, dict(scale=1e-40), "scale is 1e-40, but it should be a normal f32 above 0"),
        (TypeError, evenorm.layer_norm_int8, dict(out=np.empty_like(X)), "out has dtype float32, but it should have int8"),
        (ValueError, evenorm.layer_norm_pair, dict(weight2=np.ones(3)), "weight2 has shape (3), but normalized_shape is (4)"),
    ]  # fmt: skip
    for error, function, arguments, message in cases:
        with pytest.raises(error) as caught:
            function(X, normalized_shape=4, **arguments)
        assert str(caught.value) == message


def test_threads():
    with pytest.raises(ValueError, match="^n is -1, but it should be at least 0$"):
        evenorm.set_num_threads(-1)
    with pytest.raises(ValueError, match="^n has an integer of more than 64 bits"):
        evenorm.set_num_threads(2**70)
    with pytest.raises(TypeError, match="^n is of type str, but it should be an integer$"):
        evenorm.set_num_threads("2")
    assert evenorm.get_num_threads() == 1


def test_targets():
    assert evenorm.target() in evenorm.targets() and "portable" in evenorm.targets()
    assert evenorm.__version__ == evenorm.version() and re.fullmatch(r"\d+\.\d+\.\d+", evenorm.version())
    assert evenorm.numerics_revision() >= 1

"""Wrong arguments raise the right exception and message, and nothing is written.

The library checks shapes, axes, eps and overlap, and tests/*_arguments_test.cpp tests those checks. Here each message
that the binding translates to Python's names has one case. All other checks are the binding's own.
"""

import array
import collections
import decimal
import fractions
import re

import ml_dtypes
import numpy as np
import pytest

import evenorm
from numpy_inputs import DTYPES, normal, same_bits

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
FLOATS = "float64, float32, float16 or bfloat16"
INTEGERS = "it should be an integer or a sequence of integers"
SEQUENCE = "it should be an array (of NumPy, or with DLPack or the buffer protocol) or a sequence of numbers"
LONG = "has an integer of more than 64 bits, but it should be within -2**63 .. 2**63 - 1"
LARGE = "is beyond what float64 holds, but it should be finite"


def refused(error, message, function, *arguments, **named):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        function(*arguments, **named)


VALUE_ERRORS = {
    "x has shape (2, 3, 4), but it should end in normalized_shape (4, 3)": dict(normalized_shape=(4, 3)),
    "normalized_shape is (), but it or axis should name at least one axis": dict(axis=()),
    "axis is (9223372036854775807), but x has 3 axes": dict(axis=2**63 - 1, return_stats=True),
    "axis is (-9223372036854775808), but x has 3 axes": dict(axis=-(2**63), return_stats=True),
    "axis is (1, -2), which names an axis twice": dict(axis=(1, -2)),
    "axis has 65 numbers, but at most 64 axes are supported": dict(axis=[0] * 65),
    f"axis {LONG}": dict(axis=(0, -(2**63) - 1)),
    f"normalized_shape {LONG}": dict(normalized_shape=10**5000),
    "weight has shape (5), but the axes normalised have shape (4)": dict(axis=-1, weight=np.ones(5)),
    "bias has shape (4, 1), but normalized_shape is (4)": dict(normalized_shape=4, bias=np.ones((4, 1))),
    "eps is -1e-05, but it should be finite and at least 0": dict(normalized_shape=4, eps=-1e-5),
    f"eps {LARGE}": dict(normalized_shape=4, eps=-(10**5000)),
    "weight is absent, but zero_centered needs one": dict(normalized_shape=4, zero_centered=True),
    "out has shape (3, 4), but x has (2, 3, 4)": dict(normalized_shape=4, out=np.ones((3, 4), np.float32)),
    "out is read-only": dict(normalized_shape=4, out=np.broadcast_to(X[0], X.shape)),
}
TYPE_ERRORS = {
    "normalized_shape or axis is missing: one of them should be given": dict(),
    "normalized_shape and axis are given, but only one of them should be": dict(normalized_shape=4, axis=-1),
    f"normalized_shape is of type float, but {INTEGERS}": dict(normalized_shape=4.0),
    f"axis is of type str, but {INTEGERS}": dict(axis=(0, "1")),
    f"normalized_shape is of type bytes, but {INTEGERS}": dict(normalized_shape=b"8"),
    f"normalized_shape is of type bytearray, but {INTEGERS}": dict(normalized_shape=bytearray(b"4")),
    f"axis is of type memoryview, but {INTEGERS}": dict(axis=memoryview(b"\0")),
    f"normalized_shape is of type set, but {INTEGERS}": dict(normalized_shape={4}),
    f"axis is of type dict, but {INTEGERS}": dict(axis={0: 1}),
    f"axis is of type list_iterator, but {INTEGERS}": dict(axis=iter([0])),
    f"normalized_shape is of type float64, but {INTEGERS}": dict(normalized_shape=np.array([4.0])),
    f"normalized_shape is of type ndarray, but {INTEGERS}": dict(normalized_shape=np.array([[4]])),
    "eps is of type str, but it should be a number": dict(normalized_shape=4, eps="1e-5"),
    f"bias has dtype bool, but it should have {FLOATS}": dict(normalized_shape=4, bias=np.ones(4, bool)),
    f"weight is of type str, but {SEQUENCE}": dict(normalized_shape=4, weight="ones"),
    "out is of type list, but it should be an array that can be written": dict(normalized_shape=4, out=[0.0]),
    f"out has dtype int8, but it should have {FLOATS}": dict(normalized_shape=4, out=np.ones(X.shape, np.int8)),
    f"out has dtype int32, but it should have {FLOATS}": dict(normalized_shape=4, out=np.ones(X.shape, np.int32)),
}


@pytest.mark.parametrize("message", [*VALUE_ERRORS, *TYPE_ERRORS])
def test_forward(message):
    error, arguments = (ValueError, VALUE_ERRORS) if message in VALUE_ERRORS else (TypeError, TYPE_ERRORS)
    refused(error, message, evenorm.layer_norm, X, **arguments[message])


OTHER_TYPES = [
    int,
    np.int8,
    bool,
    complex,
    np.longdouble,
    object,
    "S4",
    "M8[s]",
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.int4,
]


@pytest.mark.parametrize("dtype", OTHER_TYPES)
def test_x_of_other_types(dtype):
    x = np.zeros((2, 4), dtype)
    refused(TypeError, f"x has dtype {x.dtype}, but it should have {FLOATS}", evenorm.layer_norm, x, 4)


@pytest.mark.parametrize("x, kind", [(None, "None"), ({}, "of type dict"), ("abc", "of type str")])
def test_x_that_is_not_an_array(x, kind):
    refused(TypeError, f"x is {kind}, but {SEQUENCE}", evenorm.layer_norm, x, 4)


def test_shapes_in_sequences_of_any_kind():
    right = evenorm.layer_norm(X, (3, 4))
    for kind in (list, np.array, np.int8, collections.deque, lambda sizes: array.array("q", sizes)):
        assert np.array_equal(evenorm.layer_norm(X, kind((3, 4))), right)
        assert np.array_equal(evenorm.layer_norm(X, axis=kind((1, 2))), right)
    right = evenorm.layer_norm(X, 4)
    for four in (np.array([4]), np.array(4), np.int16(4), [np.int64(4)], range(4, 5)):
        assert np.array_equal(evenorm.layer_norm(X, four), right)


@pytest.mark.parametrize("dtype", DTYPES)
def test_default_eps_of_rms_norm(dtype):
    x = (1e-3 * normal(dtype, 2, 3)).astype(DTYPES[dtype])
    eps = 2.0**-52 if dtype == "f64" else 2.0**-23
    assert np.array_equal(evenorm.rms_norm(x, 3), evenorm.rms_norm(x, 3, eps=eps))
    assert not np.array_equal(evenorm.rms_norm(x, 3), evenorm.rms_norm(x, 3, eps=1e-5))


def test_only_rms_norms_take_none_for_eps():
    evenorm.rms_norm(X, 4, eps=None)
    evenorm.add_rms_norm(X, X, 4, eps=None), evenorm.rms_norm_backward(X, X, 4, eps=None)
    for function, count in ((evenorm.layer_norm, 1), (evenorm.layer_norm_backward, 2), (evenorm.add_layer_norm, 2),
                            (evenorm.layer_norm_int8, 1)):  # fmt: skip
        refused(TypeError, "eps is None, but it should be a number", function, *[X] * count, 4, eps=None)


def test_byte_order_masks_and_strides():
    swapped = X.astype(">f4")
    message = "x has dtype >f4, which is not in native byte order; convert it: x.astype(x.dtype.newbyteorder('='))"
    refused(TypeError, message, evenorm.layer_norm, swapped, 4)
    converted = swapped.astype(swapped.dtype.newbyteorder("="))
    assert np.array_equal(evenorm.layer_norm(converted, 4), evenorm.layer_norm(X, 4))
    masked = np.ma.masked_array(X, X > 3)
    refused(TypeError, "x is a masked array; fill it first: x.filled(...)", evenorm.layer_norm, masked, 4)
    records = np.zeros(5, dtype=[("flag", np.int8), ("value", np.float32)])
    with pytest.raises(ValueError, match="^x has a stride of 5 bytes, but strides should be multiples of the 4 bytes"):
        evenorm.layer_norm(records["value"], 5)


def test_overlap_is_refused_and_nothing_written():
    memory = np.arange(40, dtype=np.float32)
    before = memory.copy()
    x, out = memory[:32].reshape(4, 8), memory[4:36].reshape(4, 8)
    refused(ValueError, "out may overlap x", evenorm.layer_norm, x, 8, out=out)
    assert np.array_equal(memory, before)


BACKWARD = {
    "dy has shape (3, 4), but x has (2, 3, 4)": dict(dy=X[0]),
    "mean is given, but rstd is absent": dict(mean=np.zeros((2, 3))),
    "mean has dtype f32, but the backward pass needs f64": dict(mean=X[..., 0], rstd=X[..., 0]),
    "accumulate is given, but out has no dweight and dbias to add to": dict(accumulate=True),
    "out is of type ndarray, but it should be a tuple (dx, dweight, dbias), where any may be None": dict(out=X.copy()),
    f"param_dtype is int64, but it should be {FLOATS}": dict(param_dtype=int),
    f"dy has dtype int64, but it should have {FLOATS}": dict(dy=X.astype(int)),
}
FUSED = {
    "residual has shape (3, 4), but x has (2, 3, 4)": (evenorm.add_layer_norm, dict(residual=X[0])),
    f"residual is None, but {SEQUENCE}": (evenorm.add_layer_norm, dict(residual=None)),
    "out is of type ndarray, but it should be a tuple (y, sum), where either may be None": (
        evenorm.add_layer_norm, dict(residual=X, out=X.copy())),
    f"residual_scale {LARGE}": (evenorm.add_layer_norm, dict(residual=X, residual_scale=10**400)),
    f"scale {LARGE}": (evenorm.layer_norm_int8, dict(scale=-(10**400))),
    "scale is 0, but it should be a normal f32 above 0": (evenorm.layer_norm_int8, dict(scale=0)),
    "scale is 1e-40, but it should be a normal f32 above 0": (evenorm.layer_norm_int8, dict(scale=1e-40)),
    "out has dtype float32, but it should have int8": (evenorm.layer_norm_int8, dict(out=X.copy())),
}  # fmt: skip


@pytest.mark.parametrize("message", BACKWARD)
def test_backward(message):
    arguments = {"dy": X, "x": X, "normalized_shape": 4, **BACKWARD[message]}
    refused((ValueError, TypeError), message, evenorm.layer_norm_backward, **arguments)


@pytest.mark.parametrize("message", FUSED)
def test_fused(message):
    function, arguments = FUSED[message]
    refused((ValueError, TypeError), message, function, X, normalized_shape=4, **arguments)


# --- the elements of sequences

MASKED = np.ma.masked_array([1.0, 2.0, 4.0], [False, True, False])
FILL = "an array in x is a masked array; fill it first: an array in x.filled(...)"
ELEMENTS = [
    ([1, None, 3], "x holds None, but it should hold numbers"),
    (["1", "2", "4"], "x holds an element of type str, but it should hold numbers"),
    ([1, 2, 1j], "x holds an element of type complex, but it should hold numbers"),
    ([1, {2}, 4], "x holds an element of type set, but it should hold numbers"),
    ([1, np.str_("2"), 4], f"a number in x has dtype <U1, but it should have {FLOATS}"),
    ([np.datetime64(1, "s")] * 3, f"a number in x has dtype datetime64[s], but it should have {FLOATS}"),
    ([1, np.bool_(True), 4], f"a number in x has dtype bool, but it should have {FLOATS}"),
    ([1, ml_dtypes.float8_e4m3fn(2), 4], f"a number in x has dtype float8_e4m3fn, but it should have {FLOATS}"),
    ([1, np.ma.masked, 4], FILL),
    ([1, np.array(2), 4], f"an array in x has dtype int64, but it should have {FLOATS}"),
    ([1, b"2", 4], f"an array in x has dtype 'B', but it should have {FLOATS}"),
    ([MASKED], FILL),
    ([[1.0, 2.0, 4.0], np.ones(3, complex)], f"an array in x has dtype complex128, but it should have {FLOATS}"),
    ([np.array([1, 2, 4], object)], f"an array in x has dtype object, but it should have {FLOATS}"),
    ([np.ones(3, ">f4")], "an array in x has dtype >f4, which is not in native byte order; convert it: "
     "an array in x.astype(an array in x.dtype.newbyteorder('='))"),
    ([["1", "2", "4"]], "x holds an element of type str, but it should hold numbers"),
    ([[[None], [2], [4]]], "x holds None, but it should hold numbers"),
]  # fmt: skip


@pytest.mark.parametrize("kind", [list, tuple, collections.deque])
@pytest.mark.parametrize("values, message", ELEMENTS, ids=[str(values) for values, _ in ELEMENTS])
def test_elements_that_are_not_numbers(values, message, kind):
    refused(TypeError, message, evenorm.layer_norm, kind(values), axis=-1)


def test_elements_of_other_arguments():
    x, none = np.ones((2, 3), np.float32), [1, None, 3]
    for function, name, arguments in (
        (evenorm.layer_norm, "weight", dict(weight=none)),
        (evenorm.layer_norm, "bias", dict(bias=none)),
        (evenorm.add_layer_norm, "residual", dict(residual=[none, none])),
        (evenorm.layer_norm_backward, "dy", dict(dy=[none, none])),
        (evenorm.layer_norm_backward, "dsum", dict(dy=x, dsum=[none, none])),
    ):
        message = f"{name} holds None, but it should hold numbers"
        refused(TypeError, message, function, x=x, normalized_shape=3, **arguments)


def test_elements_that_are_numbers():
    right = evenorm.layer_norm([1.0, 2.0, 4.0], 3)
    for values in (
        (1, 2, 4), [np.float64(1), np.float32(2), np.float16(4)], [True, np.int8(2), np.uint64(4)],
        [ml_dtypes.bfloat16(1), 2, 4], [decimal.Decimal(1), fractions.Fraction(2), 4],
        [np.array(1.0), np.array(2.0, np.float32), np.array(4.0, np.float16)],
    ):  # fmt: skip
        assert same_bits(evenorm.layer_norm(values, 3), right)
        assert same_bits(evenorm.layer_norm(X[0, 0, :3], 3, values), evenorm.layer_norm(X[0, 0, :3], 3, [1.0, 2, 4]))
    for rows in ([np.float32([1, 2, 4])], (memoryview(np.float64([1, 2, 4])),), [range(1, 3), [4, 4]]):
        assert evenorm.layer_norm(rows, axis=-1).dtype == np.float64


def test_elements_with_an_array_method():
    class Lent:
        def __init__(self, lent):
            self.lent = lent

        def __array__(self, dtype=None, copy=None):
            return self.lent

    assert same_bits(evenorm.layer_norm([Lent(np.float32([1, 2, 4]))], 3), evenorm.layer_norm([[1.0, 2.0, 4.0]], 3))
    refused(TypeError, FILL, evenorm.layer_norm, [Lent(MASKED)], 3)
    refused(TypeError, FILL.replace("an array in ", ""), evenorm.layer_norm, Lent(MASKED), 3)


def test_elements_that_are_torch_tensors():
    torch = pytest.importorskip("torch")
    right = evenorm.layer_norm([[1.0, 2.0, 4.0]], 3)
    t = torch.tensor([1.0, 2.0, 4.0])
    assert same_bits(evenorm.layer_norm([t], 3), right) and same_bits(evenorm.layer_norm([list(t)], 3), right)
    with pytest.raises(TypeError, match="^an array in x has dtype complex64"):
        evenorm.layer_norm([t * 1j], 3)
    with pytest.raises(RuntimeError, match="negative bit"):
        evenorm.layer_norm([(t * 1j).conj().imag], 3)


def test_sequences_that_are_not_arrays():
    endless = []
    endless.append(endless)
    for values in ([[1, 2], [3]], [10**400, 1, 2], [1.0, [2.0]]):
        with pytest.raises(ValueError, match="^x is not an array of numbers: "):
            evenorm.layer_norm(values, axis=0)
    refused(ValueError, "x is nested deeper than the 64 axes that are supported", evenorm.layer_norm, endless, axis=0)


# --- the library's settings


def test_threads():
    refused(ValueError, "n is -1, but it should be at least 0", evenorm.set_num_threads, -1)
    refused(ValueError, f"n {LONG}", evenorm.set_num_threads, 2**70)
    refused(TypeError, "n is of type str, but it should be an integer", evenorm.set_num_threads, "2")
    assert evenorm.get_num_threads() == 1

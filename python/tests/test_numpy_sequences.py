"""Sequences of numbers: their elements are under the rules that arrays are under."""

import collections
import decimal
import fractions

import ml_dtypes
import numpy as np
import pytest
from test_numpy_layouts import same_bits

import evenorm

FLOATS = "float64, float32, float16 or bfloat16"
MASKED = np.ma.masked_array([1.0, 2.0, 4.0], [False, True, False])
REFUSED = [
    ([1, None, 3], "None, but it should hold numbers"),
    (["1", "2", "4"], "an element of type str, but it should hold numbers"),
    ([1, 2, 1j], "an element of type complex, but it should hold numbers"),
    ([1, {2}, 4], "an element of type set, but it should hold numbers"),
    ([1, {2: 3}, 4], "an element of type dict, but it should hold numbers"),
    ([1, object(), 4], "an element of type object, but it should hold numbers"),
    ([1, np.complex64(2), 4], f"a number in {{}} has dtype complex64, but it should have {FLOATS}"),
    ([1, np.str_("2"), 4], f"a number in {{}} has dtype <U1, but it should have {FLOATS}"),
    ([np.datetime64(1, "s")] * 3, f"a number in {{}} has dtype datetime64[s], but it should have {FLOATS}"),
    ([np.timedelta64(1, "s")] * 3, f"a number in {{}} has dtype timedelta64[s], but it should have {FLOATS}"),
    ([1, np.longdouble(2), 4], f"a number in {{}} has dtype {np.dtype(np.longdouble)}, but it should have {FLOATS}"),
    ([1, np.bool_(True), 4], f"a number in {{}} has dtype bool, but it should have {FLOATS}"),
    ([1, ml_dtypes.float8_e4m3fn(2), 4], f"a number in {{}} has dtype float8_e4m3fn, but it should have {FLOATS}"),
    ([1, np.ma.masked, 4], "an array in {} is a masked array; fill it first: an array in {}.filled(...)"),
    ([1, np.array(2j), 4], f"an array in {{}} has dtype complex128, but it should have {FLOATS}"),
    ([1, np.array(2), 4], f"an array in {{}} has dtype int64, but it should have {FLOATS}"),
    ([1, b"2", 4], f"an array in {{}} has dtype 'B', but it should have {FLOATS}"),
]
ROWS = [
    ([MASKED], "an array in {} is a masked array; fill it first: an array in {}.filled(...)"),
    ([[1.0, 2.0, 4.0], np.ones(3, complex)], f"an array in {{}} has dtype complex128, but it should have {FLOATS}"),
    ((np.ones(3, "M8[s]"),), f"an array in {{}} has dtype datetime64[s], but it should have {FLOATS}"),
    ([np.array(["1", "2", "4"])], f"an array in {{}} has dtype <U1, but it should have {FLOATS}"),
    ([np.array([1, 2, 4], object)], f"an array in {{}} has dtype object, but it should have {FLOATS}"),
    ([np.ones(3, ">f4")], "an array in {} has dtype >f4, which is not in native byte order; convert it: "
     "an array in {}.astype(an array in {}.dtype.newbyteorder('='))"),
    ([b"124"], f"an array in {{}} has dtype 'B', but it should have {FLOATS}"),
    ([["1", "2", "4"]], "an element of type str, but it should hold numbers"),
    ([[[None], [2], [4]]], "None, but it should hold numbers"),
]  # fmt: skip


def told(message, name):
    return message.replace("{}", name) if "{}" in message else f"{name} holds {message}"


def refused(function, message, *arguments, **named):
    with pytest.raises(TypeError) as caught:
        function(*arguments, **named)
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", [list, tuple, collections.deque])
@pytest.mark.parametrize("values, message", REFUSED + ROWS, ids=[m[:50] for _, m in REFUSED + ROWS])
def test_what_is_no_number(values, message, kind):
    refused(evenorm.layer_norm, told(message, "x"), kind(values), axis=-1)


@pytest.mark.parametrize("values, message", REFUSED, ids=[m[:50] for _, m in REFUSED])
def test_what_is_no_number_elsewhere(values, message):
    x = np.ones((2, 3), np.float32)
    for name in ("weight", "bias"):
        refused(evenorm.layer_norm, told(message, name), x, 3, **{name: values})
    refused(evenorm.layer_norm_pair, told(message, "weight2"), x, 3, weight2=values)
    refused(evenorm.layer_norm_backward, told(message, "weight"), x, x, 3, values)
    refused(evenorm.add_layer_norm, told(message, "residual"), x, [values, values], 3)
    for name in ("dy", "dsum"):
        arguments = {"dy": x, "x": x, "normalized_shape": 3, name: [values, values]}
        refused(evenorm.layer_norm_backward, told(message, name), **arguments)


def test_pandas_like_elements():
    class Lent:
        def __init__(self, lent):
            self.lent = lent

        def __array__(self, dtype=None, copy=None):
            return self.lent

    right = evenorm.layer_norm([[1.0, 2.0, 4.0]], 3)
    assert same_bits(evenorm.layer_norm([Lent(np.float32([1, 2, 4]))], 3), right)
    for wrong in (np.ones(3, complex), MASKED):
        with pytest.raises(TypeError, match="^an array in x "):
            evenorm.layer_norm([Lent(wrong)], 3)
        with pytest.raises(TypeError, match="^x (is a masked array|has dtype complex128)"):
            evenorm.layer_norm(Lent(wrong), 3)


def test_torch_elements():
    torch = pytest.importorskip("torch")
    right = evenorm.layer_norm([[1.0, 2.0, 4.0]], 3)
    t = torch.tensor([1.0, 2.0, 4.0])
    assert same_bits(evenorm.layer_norm([t], 3), right) and same_bits(evenorm.layer_norm([list(t)], 3), right)
    with pytest.raises(TypeError, match="^an array in x has dtype complex64"):
        evenorm.layer_norm([t * 1j], 3)
    with pytest.raises(RuntimeError, match="negative bit"):
        evenorm.layer_norm([(t * 1j).conj().imag], 3)


def test_numbers():
    right = evenorm.layer_norm([1.0, 2.0, 4.0], 3)
    numbers = [
        (1, 2, 4), [np.float64(1), np.float32(2), np.float16(4)], [True, np.int8(2), np.uint64(4)],
        [ml_dtypes.bfloat16(1), 2, 4], [decimal.Decimal(1), fractions.Fraction(2), 4],
        [np.array(1.0), np.array(2.0, np.float32), np.array(4.0, np.float16)], [np.float32(1), 2.0, 4],
    ]  # fmt: skip
    for values in numbers:
        assert same_bits(evenorm.layer_norm(values, 3), right)
        assert same_bits(
            evenorm.layer_norm([1.0, 2.0, 4.0], 3, values), evenorm.layer_norm(right * 0 + [1, 2, 4], 3, [1.0, 2, 4])
        )
    for rows in ([np.float32([1, 2, 4])], (memoryview(np.float64([1, 2, 4])),), [range(1, 3), [4, 4]]):
        assert evenorm.layer_norm(rows, axis=-1).dtype == np.float64


def test_no_arrays_of_numbers():
    endless = []
    endless.append(endless)
    for values in ([[1, 2], [3]], [10**400, 1, 2], [1.0, [2.0]]):
        with pytest.raises(ValueError, match="^x is no array of numbers: "):
            evenorm.layer_norm(values, axis=0)
    with pytest.raises(ValueError, match="^weight is no array of numbers: "):
        evenorm.layer_norm(np.ones((2, 3)), 3, [10**400, 1, 2])
    with pytest.raises(ValueError, match="^x is nested deeper than the 64 axes that are supported$"):
        evenorm.layer_norm(endless, axis=0)

"""What is no NumPy array: DLPack, the buffer protocol, sequences. All but sequences are read and written in place."""

import array
import ctypes
import gc
import sys
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest
from test_numpy_layouts import same_bits, tensor

import evenorm
import numpy_inputs as inputs


class OnlyDlpack:
    """A lender of version 1 of DLPack, or of 0 alone."""

    def __init__(self, lent, version=1):
        self.lent, self.version = lent, version

    def __dlpack__(self, **options):
        if self.version == 0:
            if options:
                raise TypeError("unexpected keyword")
            return self.lent.__dlpack__()
        return self.lent.__dlpack__(**options)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_dlpack(dtype, version):
    x, weight, bias = tensor(dtype, 6, 33), inputs.weight(dtype, 33), inputs.bias(dtype, 33)
    right = evenorm.layer_norm(x, 33, weight, bias)
    for lent in (x, np.asfortranarray(x), np.ascontiguousarray(x[:, ::-1])[:, ::-1]):
        y = evenorm.layer_norm(OnlyDlpack(lent, version), 33, OnlyDlpack(weight, version), OnlyDlpack(bias, version))
        assert type(y) is np.ndarray and same_bits(y, right)
    written = np.zeros_like(x)
    out = OnlyDlpack(written, version)
    assert evenorm.layer_norm(x, 33, weight, bias, out=out) is out and same_bits(written, right)


def test_dlpack_gives_back_what_it_lent():
    x = tensor("f32", 6, 33)
    for version in (0, 1):
        before = sys.getrefcount(x)
        for _ in range(100):
            evenorm.layer_norm(OnlyDlpack(x, version), 33)
            with pytest.raises(ValueError, match="eps is -1"):
                evenorm.layer_norm(OnlyDlpack(x, version), 33, eps=-1)
        gc.collect()
        assert sys.getrefcount(x) == before


def test_dlpack_read_only():
    x = tensor("f32", 2, 3)
    x.flags.writeable = False
    y = evenorm.layer_norm(OnlyDlpack(x), 3)
    assert same_bits(y, evenorm.layer_norm(x, 3))
    with pytest.raises(ValueError, match="^out is read-only$"):
        evenorm.layer_norm(y, 3, out=OnlyDlpack(x))


class Tensor(ctypes.Structure):
    """DLPack's DLManagedTensor, of version 0."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class ByHand:
    """Lends an array as no common lender does: an offset in bytes, no strides, another device."""

    def __init__(self, lent, offset=0, device=1, lanes=1):
        self.lent, self.shape = lent, (ctypes.c_int64 * lent.ndim)(*lent.shape)
        bits = 8 * lent.itemsize
        self.tensor = Tensor(
            lent.ctypes.data - offset, (device, 0), lent.ndim, 2, bits, lanes, self.shape, None, offset
        )

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def test_dlpack_of_uncommon_lenders():
    x = tensor("f32", 6, 33)
    right = evenorm.layer_norm(x, 33)
    assert same_bits(evenorm.layer_norm(ByHand(x), 33), right)
    assert same_bits(evenorm.layer_norm(ByHand(x, offset=12), 33), right)
    assert same_bits(evenorm.layer_norm(ByHand(x, device=3), 33), right)
    with pytest.raises(
        TypeError, match=r"^x is on another device \(DLPack's type 2\), but it should be in the CPU's memory$"
    ):
        evenorm.layer_norm(ByHand(x, device=2), 33)
    with pytest.raises(TypeError, match="^x has dtype float32x4, but"):
        evenorm.layer_norm(ByHand(x, lanes=4), 33)


def test_dlpack_wrong_types():
    with pytest.raises(
        TypeError, match="^x has dtype int64, but it should have float64, float32, float16 or bfloat16$"
    ):
        evenorm.layer_norm(OnlyDlpack(np.arange(6).reshape(2, 3)), 3)
    with pytest.raises(TypeError, match="^weight has dtype complex64, but"):
        evenorm.layer_norm(tensor("f32", 2, 3), 3, OnlyDlpack(np.ones(3, np.complex64)))


def test_torch():
    torch = pytest.importorskip("torch")
    for dtype, kind in [
        (torch.float64, "f64"),
        (torch.float32, "f32"),
        (torch.float16, "f16"),
        (torch.bfloat16, "bf16"),
    ]:
        x = tensor(kind, 4, 5, 6)
        held = torch.from_numpy(x.view(f"i{x.itemsize}")).view(dtype)
        for lent, axis in [(held, 2), (held, (0, 1)), (held.transpose(0, 2), 0)]:
            right = evenorm.layer_norm(x if lent is held else x.transpose(2, 1, 0), axis=axis)
            y = evenorm.layer_norm(lent, axis=axis)
            assert type(y) is np.ndarray and y.dtype == x.dtype and same_bits(y, right)
            out = torch.empty_like(lent)
            assert evenorm.layer_norm(lent, axis=axis, out=out) is out
            assert same_bits(out.contiguous().view(getattr(torch, f"int{8 * x.itemsize}")).numpy().view(x.dtype), right)
    assert evenorm.layer_norm(torch.empty(0, 5), 5).shape == (0, 5)
    with pytest.raises(BufferError, match="grad"):
        evenorm.layer_norm(torch.ones(2, 3, requires_grad=True), 3)


def test_torch_views_that_negate():
    """z.conj().imag is a view of z whose memory holds the opposite."""
    torch = pytest.importorskip("torch")
    z = torch.randn(4, 6, 2, dtype=torch.float64)
    for dtype in (torch.complex128, torch.complex64):
        negated = torch.view_as_complex(z).to(dtype).conj().imag
        plain = negated.resolve_neg().numpy()
        assert negated.is_neg() and not np.array_equal(plain, 0 * plain)
        weight, dy = negated[0], torch.view_as_complex(z.flip(0)).to(dtype).conj().imag
        assert weight.is_neg() and dy.is_neg()
        right = evenorm.layer_norm(plain, 6, plain[0])
        assert same_bits(evenorm.layer_norm(negated, 6, weight), right)
        exact = evenorm.layer_norm_backward(plain[::-1], plain, 6, plain[0])
        for found, gradient in zip(evenorm.layer_norm_backward(dy, negated, 6, weight), exact, strict=True):
            assert same_bits(found, gradient)
        before = negated.clone()
        with pytest.raises(
            ValueError,
            match=r"^out has its negative bit set, but it should be written as it is; pass out.resolve_neg\(\)$",
        ):
            evenorm.layer_norm(negated, 6, out=negated)
        assert torch.equal(negated, before)
    for conjugated in (torch.view_as_complex(z).conj(), torch.view_as_complex(z)):
        with pytest.raises(TypeError, match="^x has dtype complex128, but it should have float64"):
            evenorm.layer_norm(conjugated, 6)
        with pytest.raises(TypeError, match="^out has dtype complex128, but it should have float64"):
            evenorm.layer_norm(plain, 6, out=conjugated)


@pytest.mark.parametrize("code,dtype", [("d", "f64"), ("f", "f32")])
def test_buffers(code, dtype):
    x = tensor(dtype, 33)
    held = array.array(code, x.tolist())
    right = evenorm.layer_norm(x, 33)
    assert same_bits(evenorm.layer_norm(held, 33), right)
    assert same_bits(evenorm.layer_norm(memoryview(held), 33), right)
    assert same_bits(evenorm.layer_norm(memoryview(held.tobytes()).cast(code), 33), right)
    assert same_bits(evenorm.layer_norm(memoryview(x.reshape(3, 11)), (3, 11)), right.reshape(3, 11))
    assert same_bits(evenorm.layer_norm(memoryview(x)[::-2], 17), evenorm.layer_norm(x[::-2], 17))
    assert evenorm.layer_norm(held, 33, out=held) is held and np.array_equal(held, right)
    held.append(1)  # no longer lent


def test_buffers_of_other_kinds():
    values = (ctypes.c_float * 3)(4, 2, 8)
    assert np.array_equal(evenorm.layer_norm(values, 3), evenorm.layer_norm(np.float32([4, 2, 8]), 3))
    half = memoryview(np.float16([4, 2, 8]))
    assert evenorm.layer_norm(half, 3).dtype == np.float16
    with pytest.raises(ValueError, match="^out is read-only$"):
        evenorm.layer_norm(np.float32([4, 2, 8]), 3, out=memoryview(bytes(12)).cast("f"))
    with pytest.raises(TypeError, match="^x has dtype 'B', but it should have float64"):
        evenorm.layer_norm(bytes(12), 12)
    with pytest.raises(TypeError, match="^x has dtype '>f', but"):
        evenorm.layer_norm(memoryview(np.ones(3, ">f4")), 3)


def test_bfloat16():
    x = tensor("bf16", 4, 16)
    y = evenorm.layer_norm(x, 16)
    assert y.dtype == ml_dtypes.bfloat16
    assert same_bits(y, evenorm.layer_norm(x.astype(np.float32), 16, out=np.empty((4, 16), ml_dtypes.bfloat16)))
    for other in (ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
        with pytest.raises(TypeError, match=f"^x has dtype {np.dtype(other)}, but"):
            evenorm.layer_norm(x.astype(other), 16)


def test_sequences_take_the_type_of_the_rest():
    x = np.float32([[4, 2, 8]])
    y = evenorm.layer_norm(x, 3, [1.5, 1, 0.5], (0.1, 0, -0.5))
    assert same_bits(y, evenorm.layer_norm(x, 3, np.float32([1.5, 1, 0.5]), np.float32([0.1, 0, -0.5])))
    long, numbers = tensor("f32", 4, 300), np.linspace(0.1, 3, 300).tolist()
    y = evenorm.layer_norm(long, 300, numbers)
    assert same_bits(y, evenorm.layer_norm(long, 300, np.float32(numbers)))
    assert not same_bits(y, evenorm.layer_norm(long, 300, np.float64(numbers)))
    half = evenorm.layer_norm(x.astype(np.float16), 3, [1.1, 1, 0.5])
    assert same_bits(half, evenorm.layer_norm(x.astype(np.float16), 3, np.float32([1.1, 1, 0.5])))
    assert same_bits(evenorm.layer_norm([[4, 2, 8]], 3), evenorm.layer_norm(x.astype(np.float64), 3))
    assert evenorm.layer_norm([np.float64(4), 2, 8], 3).dtype == np.float64


def test_scalars_and_subclasses():
    class Named(np.ndarray):
        pass

    x = np.float32([4, 2, 8])
    assert type(evenorm.layer_norm(x.view(Named), 3)) is np.ndarray
    with pytest.raises(ValueError, match=r"^x has shape \(\), but it should end in normalized_shape \(1\)$"):
        evenorm.layer_norm(np.float32(3), 1)
    with pytest.raises(ValueError, match=r"^axis is \(0\), but x has 0 axes$"):
        evenorm.layer_norm(3.5, axis=0)

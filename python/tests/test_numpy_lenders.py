"""Lenders other than NumPy: DLPack, the buffer protocol, sequences. Only sequences are copied."""

import array
import ctypes
import gc
import sys
from typing import ClassVar

import numpy as np
import pytest

import evenorm
from numpy_inputs import DTYPES, all_same_bits, bias, normal, same_bits, weight


class OnlyDlpack:
    """Lends by DLPack 1.0, or by version 0, whose __dlpack__ takes no options."""

    def __init__(self, lent, version=1):
        self.lent, self.version = lent, version

    def __dlpack__(self, **options):
        if self.version == 0 and options:
            raise TypeError("unexpected keyword")
        return self.lent.__dlpack__(**options)


VERSIONS = pytest.mark.parametrize("version", [0, 1])


@VERSIONS
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_dlpack(dtype, version):
    x, w, b = normal(dtype, 6, 33), weight(dtype, 33), bias(dtype, 33)
    right = evenorm.layer_norm(x, 33, w, b)
    for lent in (x, np.asfortranarray(x), np.ascontiguousarray(x[:, ::-1])[:, ::-1]):
        y = evenorm.layer_norm(OnlyDlpack(lent, version), 33, OnlyDlpack(w, version), OnlyDlpack(b, version))
        assert type(y) is np.ndarray and same_bits(y, right)
    written = np.zeros_like(x)
    out = OnlyDlpack(written, version)
    if version == 0:  # has no flag that tells whether memory may be written
        with pytest.raises(ValueError, match="^out is read-only$"):
            evenorm.layer_norm(x, 33, w, b, out=out)
        assert not written.any()
    else:
        assert evenorm.layer_norm(x, 33, w, b, out=out) is out and same_bits(written, right)


@VERSIONS
def test_dlpack_is_released(version):
    x = normal("f32", 6, 33)
    before = sys.getrefcount(x)
    for _ in range(100):
        evenorm.layer_norm(OnlyDlpack(x, version), 33)
        with pytest.raises(ValueError, match="eps is -1"):
            evenorm.layer_norm(OnlyDlpack(x, version), 33, eps=-1)
    gc.collect()
    assert sys.getrefcount(x) == before


def test_dlpack_read_only():
    x = normal("f32", 2, 3)
    x.flags.writeable = False
    y = evenorm.layer_norm(OnlyDlpack(x), 3)
    assert same_bits(y, evenorm.layer_norm(x, 3))
    with pytest.raises(ValueError, match="^out is read-only$"):
        evenorm.layer_norm(y, 3, out=OnlyDlpack(x))


class Tensor(ctypes.Structure):
    """DLPack's DLManagedTensor of version 0."""

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
    """Lends an array in unusual ways: an offset in bytes, no strides, another device."""

    def __init__(self, lent, offset=0, device=1, lanes=1):
        self.lent, self.shape = lent, (ctypes.c_int64 * lent.ndim)(*lent.shape)
        start, bits = lent.ctypes.data - offset, 8 * lent.itemsize
        self.tensor = Tensor(start, (device, 0), lent.ndim, 2, bits, lanes, self.shape, None, offset)

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def test_dlpack_of_uncommon_lenders():
    x = normal("f32", 6, 33)
    right = evenorm.layer_norm(x, 33)
    for lent in (ByHand(x), ByHand(x, offset=12), ByHand(x, device=3)):
        assert same_bits(evenorm.layer_norm(lent, 33), right)
    with pytest.raises(TypeError, match=r"^x is on another device \(DLPack's type 2\), but it should be in the CPU's"):
        evenorm.layer_norm(ByHand(x, device=2), 33)
    with pytest.raises(TypeError, match="^x has dtype float32x4, but"):
        evenorm.layer_norm(ByHand(x, lanes=4), 33)


@pytest.mark.parametrize("dtype", [np.int64, np.complex64])
def test_dlpack_of_other_types(dtype):
    x = np.ones((2, 3), dtype)
    with pytest.raises(
        TypeError, match=f"^x has dtype {x.dtype}, but it should have float64, float32, float16 or bfloat"
    ):
        evenorm.layer_norm(OnlyDlpack(x), 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch(dtype):
    torch = pytest.importorskip("torch")
    x = normal(dtype, 4, 5, 6)
    integers = getattr(torch, f"int{8 * x.itemsize}")
    names = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    held = torch.from_numpy(x.view(f"i{x.itemsize}")).view(names[dtype])
    for lent, same, axis in [(held, x, 2), (held, x, (0, 1)), (held.transpose(0, 2), x.transpose(2, 1, 0), 0)]:
        right = evenorm.layer_norm(same, axis=axis)
        y = evenorm.layer_norm(lent, axis=axis)
        assert type(y) is np.ndarray and same_bits(y, right)
        out = torch.empty_like(lent)
        assert evenorm.layer_norm(lent, axis=axis, out=out) is out
        assert same_bits(out.contiguous().view(integers).numpy().view(x.dtype), right)
    assert evenorm.layer_norm(torch.empty(0, 5), 5).shape == (0, 5)
    with pytest.raises(BufferError, match="grad"):
        evenorm.layer_norm(torch.ones(2, 3, requires_grad=True), 3)


def test_torch_views_that_negate():
    """z.conj().imag is a view of z whose memory holds the negated values."""
    torch = pytest.importorskip("torch")
    z = torch.randn(4, 6, dtype=torch.complex128)
    negated, dy = z.conj().imag, z.flip(0).conj().imag
    assert negated.is_neg() and dy.is_neg()
    plain = negated.resolve_neg().numpy()
    assert same_bits(evenorm.layer_norm(negated, 6, negated[0]), evenorm.layer_norm(plain, 6, plain[0]))
    found = evenorm.layer_norm_backward(dy, negated, 6, negated[0])
    assert all_same_bits(found, evenorm.layer_norm_backward(plain[::-1], plain, 6, plain[0]))
    before = negated.clone()
    with pytest.raises(ValueError, match=r"^out has its negative bit set.*; pass out.resolve_neg\(\)$"):
        evenorm.layer_norm(negated, 6, out=negated)
    assert torch.equal(negated, before)
    for conjugated in (z.conj(), z):
        with pytest.raises(TypeError, match="^x has dtype complex128, but it should have float64"):
            evenorm.layer_norm(conjugated, 6)
        with pytest.raises(TypeError, match="^out has dtype complex128, but it should have float64"):
            evenorm.layer_norm(plain, 6, out=conjugated)


@pytest.mark.parametrize("code,dtype", [("d", "f64"), ("f", "f32")])
def test_buffers(code, dtype):
    x = normal(dtype, 33)
    held = array.array(code, x.tolist())
    right = evenorm.layer_norm(x, 33)
    for lent in (held, memoryview(held), memoryview(held.tobytes()).cast(code)):
        assert same_bits(evenorm.layer_norm(lent, 33), right)
    assert same_bits(evenorm.layer_norm(memoryview(x.reshape(3, 11)), (3, 11)), right.reshape(3, 11))
    assert same_bits(evenorm.layer_norm(memoryview(x)[::-2], 17), evenorm.layer_norm(x[::-2], 17))
    del lent
    assert evenorm.layer_norm(held, 33, out=held) is held and np.array_equal(held, right)
    held.append(1)  # fails while the buffer is lent


def test_buffers_of_other_kinds():
    values = (ctypes.c_float * 3)(4, 2, 8)
    assert np.array_equal(evenorm.layer_norm(values, 3), evenorm.layer_norm(np.float32([4, 2, 8]), 3))
    assert evenorm.layer_norm(memoryview(np.float16([4, 2, 8])), 3).dtype == np.float16
    with pytest.raises(ValueError, match="^out is read-only$"):
        evenorm.layer_norm(np.float32([4, 2, 8]), 3, out=memoryview(bytes(12)).cast("f"))
    with pytest.raises(TypeError, match="^x has dtype 'B', but it should have float64"):
        evenorm.layer_norm(bytes(12), 12)
    with pytest.raises(TypeError, match="^x has dtype '>f', but"):
        evenorm.layer_norm(memoryview(np.ones(3, ">f4")), 3)


def test_sequences_take_the_type_of_the_rest():
    numbers = np.linspace(0.1, 3, 300).tolist()
    for dtype in ("f64", "f32", "f16"):
        x = normal(dtype, 4, 300)
        found, wide, narrow = (
            evenorm.layer_norm(x, 300, kind(numbers), kind(numbers[::-1]), out=np.empty((4, 300), np.float32))
            for kind in (tuple, np.float64, np.float32)
        )
        assert same_bits(found, wide if dtype == "f64" else narrow) and not same_bits(wide, narrow)
    assert same_bits(evenorm.layer_norm([[4, 2, 8]], 3), evenorm.layer_norm(np.float64([[4, 2, 8]]), 3))
    assert evenorm.layer_norm([np.float64(4), 2, 8], 3).dtype == np.float64


def test_scalars_and_subclasses():
    class Named(np.ndarray):
        pass

    assert type(evenorm.layer_norm(np.float32([4, 2, 8]).view(Named), 3)) is np.ndarray
    with pytest.raises(ValueError, match=r"^x has shape \(\), but it should end in normalized_shape \(1\)$"):
        evenorm.layer_norm(np.float32(3), 1)
    with pytest.raises(ValueError, match=r"^axis is \(0\), but x has 0 axes$"):
        evenorm.layer_norm(3.5, axis=0)

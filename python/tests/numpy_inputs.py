"""Arrays that the NumPy tests share, and comparisons of their bits."""

import ml_dtypes
import numpy as np

DTYPES = {"f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


def normal(dtype, *shape, seed=11):
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def weight(dtype, *shape, seed=2):
    values = 1 + 0.5 * np.random.default_rng(seed).standard_normal(shape)
    values.flat[values.size // 3] = 0
    return values.astype(DTYPES[dtype])


def bias(dtype, *shape, seed=3):
    return (0.25 * np.random.default_rng(seed).standard_normal(shape)).astype(DTYPES[dtype])


def same_bits(a, b):
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def all_same_bits(a, b):
    return all(same_bits(one, other) for one, other in zip(a, b, strict=True))

"""Shared by the NumPy tests: storage types, arrays, comparisons of bits, and files of the repository as modules."""

import importlib.util
import inspect
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

DTYPES = {"f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
STORAGE = F64, F32, BF16, F16 = [np.dtype(t) for t in DTYPES.values()]
RANGE = {F64: (-1074, 1023), F32: (-149, 127), BF16: (-133, 127), F16: (-24, 15)}  # the smallest and largest exponents


def normal(dtype, *shape, seed=11):
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def weight(dtype, *shape, seed=2):
    values = 1 + 0.5 * np.random.default_rng(seed).standard_normal(shape)
    values.flat[values.size // 3] = 0
    return values.astype(DTYPES[dtype])


def bias(dtype, *shape, seed=3):
    return (0.25 * np.random.default_rng(seed).standard_normal(shape)).astype(DTYPES[dtype])


def one_of(rng, choices):
    return choices[rng.integers(len(choices))]


def in_both_orders(x):
    """x (samples, groups, channels, pixels) as it is, and channels-last in memory."""
    return x, np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)


def same_bits(a, b):
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def all_same_bits(a, b):
    return all(same_bits(one, other) for one, other in zip(a, b, strict=True))


def run_program(code):
    subprocess.run([sys.executable, "-c", inspect.cleandoc(code)], check=True)


def load(file):
    """Imports a Python file of the repository. Skips the test's file if it is missing, as beside an installed package."""
    path = pathlib.Path(__file__).resolve().parents[2] / file
    if not path.exists():
        pytest.skip(f"no {path}", allow_module_level=True)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

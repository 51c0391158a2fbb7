"""Shared by the tests against the models in tests/: the models, and the storage types."""

import importlib.util
import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest

F64, F32, BF16, F16 = (np.dtype(t) for t in (np.float64, np.float32, ml_dtypes.bfloat16, np.float16))
STORAGE = [F64, F32, BF16, F16]
RANGE = {F64: (-1074, 1023), F32: (-149, 127), BF16: (-133, 127), F16: (-24, 15)}  # the smallest and largest exponents


def load(name):
    """Imports tests/`name`.py. Skips the test's file if it is missing, as beside an installed package."""
    path = pathlib.Path(__file__).resolve().parents[2] / "tests" / f"{name}.py"
    if not path.exists():
        pytest.skip(f"no {path}", allow_module_level=True)
    spec = importlib.util.spec_from_file_location(name, path)
    model = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    return model

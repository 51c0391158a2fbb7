"""The buffers and data of a point, and their description for a rival library (rival.h)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from typing import NamedTuple

import numpy as np
from points import KINDS, ROOT, Point

EPS = float(np.float32(1e-5))  # a float32, because some libraries store it so
STORED = {"f64": np.float64, "f32": np.float32, "bf16": np.uint16, "f16": np.float16, "i8": np.int8}
UNIT = {"f64": 2.0**-53, "f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}
PASSES = {
    "forward": 0, "backward": 1, "backward-anew": 2, "residual": 3, "int8": 4, "channels-first": 5, "torch-forward": 0,
    "torch-both": 1,
}  # fmt: skip
CODES = {"f64": 0, "f32": 1, "bf16": 2, "f16": 3}


class Problem(ctypes.Structure):
    """struct bench_problem."""

    _fields_ = (
        [(name, ctypes.c_int32) for name in ("pass_", "kind", "dtype", "parameter_dtype", "threads")]
        + [(name, ctypes.c_int64) for name in ("rows", "cols", "pixels")]
        + [("eps", ctypes.c_double)]
        + [(name, ctypes.c_void_p) for name in ("x", "residual", "dy", "weight", "bias", "mean", "rstd")]
        + [(name, ctypes.c_void_p) for name in ("y", "sum", "scale", "dx", "dweight", "dbias")]
    )


def zeros(count: int, dtype: str) -> np.ndarray:
    """An array that begins 64 bytes into a page, as large blocks from malloc do. All its pages are mapped."""
    size = np.dtype(STORED[dtype]).itemsize * count
    room = np.zeros(size + 8192, np.uint8)
    start = -room.ctypes.data % 4096 + 64
    array = room[start : start + size].view(STORED[dtype])
    array[:] = 0
    return array


def narrow(values: np.ndarray, dtype: str) -> np.ndarray:
    """The values as the type stores them, rounded to nearest even."""
    if dtype != "bf16":
        return values.astype(STORED[dtype])
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widen(stored: np.ndarray, dtype: str) -> np.ndarray:
    """The values in float64; those of float64 in the widest type."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.longdouble if dtype == "f64" else np.float64)


def normal(count: int, seed: int) -> np.ndarray:
    """Normal numbers. More than about 4 million repeat, out of step with any row."""
    values = np.random.default_rng(seed).standard_normal(min(count, (1 << 22) + 7), np.float32)
    return np.resize(values, count)


def put(values: np.ndarray, dtype: str) -> np.ndarray:
    array = zeros(values.size, dtype)
    array[:] = narrow(values, dtype)
    return array


def data_of(point: Point) -> np.ndarray:
    if point.data == "activations":
        hidden = np.load(ROOT / "examples" / "minilm" / "hidden.npy")
        if point.cols != hidden.shape[-1]:
            raise ValueError(f"the activations have {hidden.shape[-1]} columns, not {point.cols}")
        return np.resize(hidden.ravel(), point.elements)
    return normal(point.elements, 1) + {"normal": 0.0, "far3": 3.0, "far1e6": 1e6}[point.data]


class Sums(NamedTuple):
    """Sums over rows, for each column; of_NAME is the sum of the terms' magnitudes."""

    dweight: np.ndarray
    of_dweight: np.ndarray
    dbias: np.ndarray
    of_dbias: np.ndarray
    rounded: np.ndarray  # how far dweight can be off because x and the mean are rounded to x's type


class Inputs:
    """The tensors that all rivals read, stored flat: rows of columns, or images of channels of pixels."""

    def __init__(self, point: Point, threads: int):
        self.point, self.threads = point, threads
        through_torch = point.form.startswith("torch-")
        self.parameters = point.dtype if through_torch or point.dtype == "f64" else "f32"
        self.x = put(data_of(point), point.dtype)
        self.weight = put(1 + 0.1 * normal(point.cols, 2), self.parameters)
        self.bias = put(0.1 * normal(point.cols, 3), self.parameters) if point.kind == "layer" else None
        self.residual = put(normal(point.elements, 4), point.dtype) if point.form == "residual" else None
        self.dy = put(normal(point.elements, 5), point.dtype) if point.gradients else None
        self.mean, self.rstd = self.statistics() if point.form == "backward" else (None, None)

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        mean, rstd = zeros(self.point.rows, "f64"), zeros(self.point.rows, "f64")
        rows = self.x.reshape(self.point.rows, self.point.cols)
        for begin in range(0, self.point.rows, 256):
            wide = widen(rows[begin : begin + 256], self.point.dtype)
            centre = wide.mean(axis=1) if self.point.kind == "layer" else np.zeros(len(wide))
            mean[begin : begin + 256] = centre
            rstd[begin : begin + 256] = 1 / np.sqrt(np.square(wide - centre[:, None]).mean(axis=1) + EPS)
        return mean, rstd

    @functools.cached_property
    def sums_over_rows(self) -> Sums:
        """The exact dweight and dbias, computed once for all rivals because they take a pass over all elements."""
        point = self.point
        mean, rstd = self.statistics() if self.mean is None else (self.mean, self.rstd)
        sums = np.zeros((5, point.cols))
        for begin in range(0, point.rows, 256):
            part = slice(begin * point.cols, (begin + 256) * point.cols)
            x, dy = (
                widen(values[part], point.dtype).astype(np.float64).reshape(-1, point.cols)
                for values in (self.x, self.dy)
            )
            terms = dy * (x - mean[begin : begin + 256, None]) * rstd[begin : begin + 256, None]
            rounded = np.abs(dy) * (1 + np.abs(mean * rstd)[begin : begin + 256, None])
            for i, values in enumerate((terms, np.abs(terms), dy, np.abs(dy), rounded)):
                sums[i] += values.sum(axis=0)
        return Sums(*sums)

    def row(self, values: np.ndarray, index: int) -> np.ndarray:
        """One row of a tensor of x's shape."""
        point = self.point
        if point.pixels:
            return values.reshape(-1, point.cols, point.pixels)[index // point.pixels, :, index % point.pixels]
        return values.reshape(point.rows, point.cols)[index]


class Outputs:
    """The results. All rivals write to the same pages, because the addresses of pages affect the speed."""

    def __init__(self, point: Point, parameters: str):
        dtype = "i8" if point.form == "int8" else point.dtype
        self.y = None if point.gradients else zeros(point.elements, dtype)
        self.sum = zeros(point.elements, dtype) if point.form == "residual" else None
        self.scale = zeros(point.rows, "f32") if point.form == "int8" else None
        self.dx = zeros(point.elements, dtype) if point.gradients else None
        self.dweight = zeros(point.cols, parameters) if point.gradients else None
        self.dbias = zeros(point.cols, parameters) if point.gradients and point.kind == "layer" else None

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: array for name, array in vars(self).items() if array is not None}

    def spoil(self) -> None:
        """Overwrites everything with NaNs, so that earlier results cannot pass for those of the next rival."""
        for array in self.arrays().values():
            array.view(np.uint8)[:] = 0xFF

    def digest(self) -> bytes:
        digest = hashlib.blake2b()
        for array in self.arrays().values():
            digest.update(array.view(np.uint8))
        return digest.digest()


def problem_of(inputs: Inputs, outputs: Outputs) -> Problem:
    """The description of the point and its buffers for a rival."""
    point = inputs.point
    problem = Problem(
        pass_=PASSES[point.form], kind=KINDS.index(point.kind), dtype=CODES[point.dtype],
        parameter_dtype=CODES[inputs.parameters], threads=inputs.threads, rows=point.rows, cols=point.cols,
        pixels=point.pixels, eps=EPS,
    )  # fmt: skip
    for owner, names in (
        (inputs, ("x", "residual", "dy", "weight", "bias", "mean", "rstd")),
        (outputs, ("y", "sum", "scale", "dx", "dweight", "dbias")),
    ):
        for name in names:
            array = getattr(owner, name)
            setattr(problem, name, None if array is None else array.ctypes.data)
    return problem

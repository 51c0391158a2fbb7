"""Times rows of widths off the grid beside rows of the next multiple of 16, through the C API, one thread.

A ratio is the median of interleaved pairs: the time of so many rows over that of as many rows of the next multiple of 16.

    .venv/bin/python bench/widths.py --targets avx3 avx2
    .venv/bin/python bench/widths.py --seed 7 --count 20
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import shutil
import statistics
import tempfile
import time

import numpy as np
from points import OFF_GRID_WIDTHS, ROOT
from report import markdown

ELEMENTS, STEP = 1 << 16, 16
EPS = ctypes.c_double(1e-5)
PASSES = [(dtype, gradients) for dtype in ("f32", "bf16") for gradients in (False, True)]


def library_for(target: str, path: str, folder: str) -> ctypes.CDLL:
    """A copy of the library, which chooses its target when it is first asked for it."""
    os.environ["EVENORM_TARGET"] = target
    library = ctypes.CDLL(shutil.copy(path, f"{folder}/{target}.so"))
    found = ctypes.c_char_p()
    if library.evenorm_target(ctypes.byref(found)) or found.value.decode() != target:
        raise SystemExit(f"{target}: this machine does not have the target")
    return library


def call_of(library: ctypes.CDLL, dtype: str, gradients: bool, rows: int, cols: int):
    """A function that runs a pass, on memory of its own."""
    random_numbers = np.random.default_rng(cols)

    def tensor(*shape: int) -> np.ndarray:
        numbers = random_numbers.standard_normal(shape, dtype=np.float32)
        return numbers if dtype == "f32" else (numbers.view(np.uint32) >> 16).astype(np.uint16)

    x, dy, y, of_columns = tensor(rows, cols), tensor(rows, cols), tensor(rows, cols), tensor(4, cols)
    name, inputs, outputs = "layer_norm", [x, y], [*of_columns[:2]]
    if gradients:
        name, inputs, outputs = "layer_norm_backward", [dy, x, y], [of_columns[0], *of_columns[2:]]
    function = getattr(library, f"evenorm_{name}_{dtype}")
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, *outputs)]
    sizes = [ctypes.c_size_t(rows), ctypes.c_size_t(cols)]
    arguments = [*pointers[: len(inputs)], *sizes, *pointers[len(inputs) :], EPS]

    def run(count: int, keep=(x, dy, y, of_columns)) -> float:
        start = time.thread_time()
        for _ in range(count):
            function(*arguments)
        return time.thread_time() - start

    return run


def ratio(library: ctypes.CDLL, dtype: str, gradients: bool, cols: int, rounds: int) -> float:
    wide = -(-cols // STEP) * STEP
    runs = [call_of(library, dtype, gradients, ELEMENTS // wide, width) for width in (cols, wide)]
    count = max(1, int(1e-3 / max(runs[1](2) / 2, 1e-6)))
    times = [[run(count) for run in runs] for _ in range(rounds)]
    return statistics.median(ours / whole for ours, whole in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--targets", nargs="+", default=["avx3"])
    parser.add_argument("--library", default=str(ROOT / "build" / "libevenorm.so"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=31)
    arguments = parser.parse_args()
    sample = sorted(random.Random(arguments.seed).sample(OFF_GRID_WIDTHS, arguments.count))
    with tempfile.TemporaryDirectory() as folder:
        libraries = {target: library_for(target, arguments.library, folder) for target in arguments.targets}
    columns = [(target, *of) for of in PASSES for target in libraries]
    ratios = [[ratio(libraries[target], *of, width, arguments.rounds) for target, *of in columns] for width in sample]
    heads = [f"{'gradients' if gradients else 'forward'} {dtype}, {target}" for target, dtype, gradients in columns]
    rows = [[str(width), *(f"{value:.2f}" for value in row)] for width, row in zip(sample, ratios, strict=True)]
    for name, of in (("mean", statistics.geometric_mean), ("most", max)):
        rows.append([name, *(f"{of(column):.2f}" for column in zip(*ratios, strict=True))])
    print(markdown(["columns", *heads], rows), end="")


if __name__ == "__main__":
    main()

"""The measured points: form, kind, type, size and data. docs/lab/ has the results."""

from __future__ import annotations

import dataclasses
import pathlib
import random

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ("layer", "rms")  # in the order of bench_kind
DTYPES = ("f32", "bf16", "f16", "f64")
BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i8": 1}
# Normal numbers, with mean 0, 3 or 1e6 standard deviations; or a model's activations (examples/minilm).
DATA = ("normal", "far3", "far1e6", "activations")

GRID = [
    (1, 768), (64, 768), (512, 768), (4096, 768), (2048, 4096), (65536, 32), (8192, 2048), (64, 65536), (32768, 2048),
    (4096, 128), (4096, 256), (700, 1024),
]  # fmt: skip
SHORT = [(512, 32), (512, 64), (512, 128), (65536, 64), (65536, 128)]
ODD_GRADIENTS = [(60000, 32), (20, 100000), (700, 768)]
OFF_GRID_WIDTHS = [cols for cols in range(17, 1101) if cols % 16]  # of those that are drawn
OFF_GRID = [  # widths not divisible by 16; all_points adds drawn ones
    (4096, 72), (3000, 100), (3000, 200), (4096, 257), (3000, 300), (2000, 500), (4096, 1000), (600, 1500),
]  # fmt: skip
ACTIVATIONS = [(256, 384), (4096, 384), (65536, 384)]
IMAGES = [
    (8, 384, 3136),
    (64, 64, 3136),
    (8, 768, 784),
    (8, 1024, 196),
    (8, 2048, 49),
    (1, 384, 196),
]  # images x channels x pixels
TORCH = [
    (1, 64), (1, 768), (16, 64), (64, 768), (512, 64), (512, 768), (4096, 64), (4096, 768), (2048, 4096), (65536, 32),
    (64, 65536), (8192, 2048), (32768, 2048), (60000, 32), (20, 100000), (700, 768),
]  # fmt: skip

FORMS = ("forward", "backward", "backward-anew", "residual", "int8", "channels-first", "torch-forward", "torch-both")
LARGEST = 1 << 30  # bytes of one tensor


@dataclasses.dataclass(frozen=True)
class Point:
    form: str
    kind: str
    dtype: str
    rows: int
    cols: int
    pixels: int = 0  # of channels-first points, whose rows are images * pixels
    data: str = "normal"

    @property
    def elements(self) -> int:
        return self.rows * self.cols

    @property
    def gradients(self) -> bool:
        return self.form in ("backward", "backward-anew", "torch-both")

    @property
    def traffic(self) -> int:
        """Bytes that the pass has to read and write, without parameters and statistics."""
        size = BYTES[self.dtype]
        per_element = {
            "backward": 3 * size, "backward-anew": 3 * size, "residual": 4 * size, "int8": size + 1,
            "torch-both": 5 * size,
        }.get(self.form, 2 * size)  # fmt: skip
        return self.elements * per_element

    @property
    def size(self) -> str:
        if self.pixels:
            return f"{self.rows // self.pixels}x{self.cols}x{self.pixels}"
        return f"{self.rows}x{self.cols}"

    def __str__(self) -> str:
        data = "" if self.data == "normal" else f" {self.data}"
        return f"{self.form} {self.kind} {self.dtype} {self.size}{data}"


def sized(form: str, kind: str, dtype: str, sizes, data: str = "normal") -> list[Point]:
    points = [Point(form, kind, dtype, rows, cols, data=data) for rows, cols in sizes]
    return [point for point in points if point.elements * BYTES[dtype] < LARGEST]


def drawn(seed: int) -> list[tuple[int, int]]:
    """Three sizes off the grid, of about 2^20 elements. Equal seeds draw equal sizes."""
    return [(round(2**20 / cols), cols) for cols in random.Random(seed).sample(OFF_GRID_WIDTHS, 3)]


def all_points(seed: int) -> list[Point]:
    points, off_grid = [], OFF_GRID + drawn(seed)
    for dtype in DTYPES:
        points += sized("forward", "layer", dtype, GRID + SHORT)
    for data in ("far3", "far1e6"):
        points += sized("forward", "layer", "f32", GRID[:-4] + GRID[-3:], data)
    points += sized("forward", "layer", "f32", ACTIVATIONS, "activations")
    for dtype in ("f32", "bf16"):
        points += sized("forward", "rms", dtype, GRID)
        for form in ("backward", "backward-anew"):
            points += sized(form, "layer", dtype, GRID + ODD_GRADIENTS)
        points += sized("residual", "layer", dtype, GRID)
    for dtype in ("f16", "f64"):
        points += sized("backward", "layer", dtype, GRID[1:4] + GRID[5:7])
    points += sized("backward", "rms", "f32", GRID[1:4] + GRID[5:7])
    points += sized("int8", "layer", "f32", GRID)
    points += [Point("channels-first", "layer", "f32", i * pixels, cols, pixels) for i, cols, pixels in IMAGES]
    for dtype in ("f32", "bf16"):
        for form in ("torch-forward", "torch-both"):
            points += sized(form, "layer", dtype, TORCH)
        points += sized("forward", "layer", dtype, off_grid) + sized("backward", "layer", dtype, off_grid)
    points += sized("torch-forward", "layer", "f32", off_grid) + sized("torch-both", "layer", "f32", off_grid)
    points += sized("torch-forward", "rms", "f32", TORCH[3:6])
    return points


def quick_points(threads: int) -> list[Point]:
    """The points of `make bench-quick`, which take less than three minutes."""
    few = [(64, 768), (512, 768), (4096, 768), (512, 32), (65536, 32), (8192, 2048)]
    if threads > 1:
        return sized("forward", "layer", "f32", few[2:]) + sized("backward", "layer", "f32", [few[2], few[5]])
    points = sized("forward", "layer", "f32", [(1, 768), *few, (2048, 4096), (4096, 128), (64, 65536), (4096, 257)])
    points += sized("forward", "layer", "f32", [(512, 768)], "far3") + sized(
        "forward", "layer", "f32", [(512, 768)], "far1e6"
    )
    points += sized("forward", "layer", "bf16", few) + sized("forward", "layer", "f16", few[1:2])
    points += sized("forward", "layer", "f64", few[1:2])
    points += sized("forward", "rms", "f32", few[1:3])
    points += sized("backward", "layer", "f32", [*few, (4096, 257)]) + sized("backward-anew", "layer", "f32", few[1:2])
    points += sized("backward", "layer", "bf16", few[1:3])
    points += sized("residual", "layer", "f32", few[1:3]) + sized("int8", "layer", "f32", few[1:3])
    points += [Point("channels-first", "layer", "f32", 8 * 784, 768, 784)]
    return points


def chosen(points: list[Point], arguments) -> list[Point]:
    """The points that the command line selects; its sizes replace the usual ones."""
    kept = [
        point for point in points
        if (not arguments.forms or point.form in arguments.forms) and (not arguments.kinds or point.kind in arguments.kinds)
        and (not arguments.dtypes or point.dtype in arguments.dtypes) and (not arguments.data or point.data in arguments.data)
    ]  # fmt: skip
    if not arguments.sizes:
        return kept
    own = [
        dataclasses.replace(point, rows=rows, cols=cols)
        for point in kept if point.form != "channels-first" for rows, cols in arguments.sizes
    ]  # fmt: skip
    return [point for point in dict.fromkeys(own) if point.data != "activations" or point.cols == ACTIVATIONS[0][1]]

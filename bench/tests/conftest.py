"""Made-up results in the form that run.py writes."""

import pytest
from points import Point

# Other libraries' times over evenorm's.
FACTORS = {"copy": 0.7, "onednn": 1.25, "torch": 2.5, "onnxruntime": 4.0}
SIZES = [(1, 768), (512, 32), (64, 768), (4096, 768), (8192, 2048)]


def one_run(traffic: int, threads: int, factors: dict[str, float]) -> dict:
    us = {name: factor * (0.1 + traffic / 8e4 / threads) for name, factor in {"evenorm": 1.0, **factors}.items()}
    rivals = {name: {"wall_us": 1.1 * value, "cpu_us": threads * value} for name, value in us.items()}
    ratios = {name: [0.98 * factor, factor, 1.03 * factor] for name, factor in factors.items()}
    return {"rounds": 9, "same_bits": None, "rivals": rivals, "ratios": ratios}


def made_up(point: Point, threads: int = 1, target: str = "native", runs: int = 1, **factors: float) -> dict:
    """An entry. In each run, the rivals are 2 % slower than in the run before."""
    fields = {"form": point.form, "kind": point.kind, "dtype": point.dtype, "rows": point.rows, "cols": point.cols}
    fields |= {"pixels": point.pixels, "data": point.data, "size": point.size, "bytes": point.traffic}
    fields |= {"threads": threads, "target": target, "forced": target != "native"}
    factors = factors or FACTORS
    slower = ({name: factor * (1 + 0.02 * i) for name, factor in factors.items()} for i in range(runs))
    return fields | {"runs": [one_run(point.traffic, threads, these) for these in slower]}


@pytest.fixture
def entry():
    return made_up


@pytest.fixture
def document() -> dict:
    points = [
        made_up(Point(form, "layer", dtype, *size), threads, runs=3)
        for form in ("forward", "backward") for dtype in ("f32", "bf16") for threads in (1, 2) for size in SIZES
    ]  # fmt: skip
    points += [
        made_up(Point("forward", "rms", "f32", 64, 768), copy=0.6, torch=0.5),
        made_up(Point("forward", "layer", "f32", 64, 768, data="far3"), copy=0.6, onednn=1.01),
        made_up(Point("forward", "layer", "f32", 64, 768), target="avx2"),
        made_up(Point("channels-first", "layer", "f32", 8 * 196, 1024, 196)),
    ]
    machine = {
        "cpu": "A processor", "vendor": "GenuineMade", "family": 1, "model": 2, "name": "Made 3", "processors": 2,
        "caches": {"L1d": "48K", "L2": "1024K", "L3": "32M"}, "system": "Linux",
    }  # fmt: skip
    return {"machine": machine, "settings": {"seed": 7}, "versions": {"onednn": "oneDNN 3.2.0"}, "points": points}

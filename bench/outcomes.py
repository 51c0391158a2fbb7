"""Reads results.json, computes figures from the results, and names their parts.

A ratio is a rival's time over evenorm's: above 1, evenorm is faster.
"""

from __future__ import annotations

import json
import math
import pathlib
import statistics

RIVALS = ("onednn", "torch", "onnxruntime", "zentorch", "against")
LIBRARIES = {
    "evenorm": "evenorm", "copy": "best copy", "onednn": "oneDNN", "torch": "PyTorch", "onnxruntime": "ONNX Runtime",
    "zentorch": "zentorch", "against": "the other commit",
}  # fmt: skip
PASSES = {
    "forward": "forward", "backward": "gradients, statistics given", "backward-anew": "gradients, statistics found anew",
    "residual": "residual, sum and norm", "int8": "forward to int8", "channels-first": "channels first",
    "torch-forward": "through PyTorch, forward", "torch-both": "through PyTorch, forward and gradients",
}  # fmt: skip
KINDS = {"layer": "", "rms": "RMS norm"}
DATA = {
    "normal": "", "far3": "mean 3 standard deviations", "far1e6": "mean 1e6 standard deviations",
    "activations": "a model's activations",
}  # fmt: skip
TARGETS = {"native": "the machine's target", "avx2": "all held to AVX2"}


def counted(entry: dict) -> str:
    """The clock that the ratios use: processor time with one thread."""
    return "cpu_us" if entry["threads"] == 1 else "wall_us"


def clock(entry: dict) -> str:
    return "processor time" if counted(entry) == "cpu_us" else "wall time"


def threads(entry: dict) -> str:
    return "1 thread" if entry["threads"] == 1 else f"{entry['threads']} threads"


def measured(entry: dict, rival: str) -> bool:
    return all(rival in run["rivals"] for run in entry["runs"])


def microseconds(entry: dict, rival: str = "evenorm") -> float:
    return statistics.median(run["rivals"][rival][counted(entry)] for run in entry["runs"])


def bandwidth(entry: dict, rival: str = "evenorm") -> float:
    """GB/s over the bytes that the pass has to read and write."""
    return 1e-3 * entry["bytes"] / microseconds(entry, rival)


def ratio(entry: dict, rival: str) -> tuple[float, float, float] | None:
    """The lowest, median and highest of the runs' medians; for one run, its quartiles."""
    if any(rival not in run["ratios"] for run in entry["runs"]):
        return None
    if len(entry["runs"]) == 1:
        return tuple(entry["runs"][0]["ratios"][rival])
    medians = sorted(run["ratios"][rival][1] for run in entry["runs"])
    return medians[0], statistics.median(medians), medians[-1]


def significant(ratios: tuple[float, float, float]) -> bool:
    """True if the ratio differs significantly from 1."""
    return not ratios[0] <= 1 <= ratios[2]


def spread(runs: int) -> str:
    return f"the lowest and highest of {runs} runs' medians" if runs > 1 else "quartiles of one run's rounds"


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def shape(entry: dict) -> tuple[int, ...]:
    """Rows and columns, or images, channels and pixels."""
    if entry["pixels"]:
        return entry["rows"] // entry["pixels"], entry["cols"], entry["pixels"]
    return entry["rows"], entry["cols"]


def size(entry: dict) -> str:
    return " x ".join(str(part) for part in shape(entry))


def off_grid(entry: dict) -> bool:
    """True if the width is not divisible by 16."""
    return entry["cols"] % 16 != 0


def size_and_data(entry: dict) -> str:
    """The size as the driver prints it, with the data unless they are normal."""
    return entry["size"] + ("" if entry["data"] == "normal" else f" {entry['data']}")


def described(entry: dict, *names: str) -> str:
    """Some of a point's fields in words; the usual values have none."""
    words = {"form": PASSES, "kind": KINDS, "data": DATA, "target": TARGETS}
    parts = (words[name].get(entry[name], entry[name]) if name in words else entry[name] for name in names)
    return ", ".join(part for part in parts if part)


class Results:
    """The results of a file, without points that were not measured."""

    def __init__(self, document: dict):
        self.machine: dict = document["machine"]
        self.seed: int = document["settings"]["seed"]
        self.versions: dict[str, str] = document.get("versions", {})
        self.points: list[dict] = [entry for entry in document["points"] if entry["runs"]]

    def chosen(self, **fields) -> list[dict]:
        return [entry for entry in self.points if all(entry[name] == value for name, value in fields.items())]

    def groups(self, *names: str, among: list[dict] | None = None) -> list[list[dict]]:
        """Groups of points with equal values in these fields."""
        found: dict[tuple, list[dict]] = {}
        for entry in self.points if among is None else among:
            found.setdefault(tuple(entry[name] for name in names), []).append(entry)
        return list(found.values())

    @staticmethod
    def rivals(entries: list[dict]) -> list[str]:
        """The rivals that at least one of the points has, without the copy. Unknown ones come last."""
        names = {name for entry in entries for name in entry["runs"][0]["ratios"] if ratio(entry, name)}
        return sorted(names - {"copy"}, key=lambda name: (RIVALS.index(name) if name in RIVALS else len(RIVALS), name))

    @property
    def processor(self) -> str:
        return f"{self.machine['cpu']} ({self.machine['name']})"

    @staticmethod
    def runs(entries: list[dict]) -> int:
        """The number of runs; the lowest one if points differ."""
        return min(len(entry["runs"]) for entry in entries)


def load(path: pathlib.Path) -> Results:
    return Results(json.loads(path.read_text(encoding="utf-8")))

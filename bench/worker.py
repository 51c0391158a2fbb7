"""Measures points in one process, with one number of threads and one target: told by a line of JSON, answers in lines.

run.py starts it, with the environment that holds all libraries to the target. What is said on standard output is one
object a point: {"point": ..., "rivals": {name: {"wall_us", "cpu_us"}}, "ratios": {name: [low, median, high]}}.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import pathlib
import statistics
import sys

import numpy as np
from points import Point
from problem import Inputs, Outputs
from rivals import Library, Rival, onnxruntime, through_torch
from verify import Wrong, verify


class Work(ctypes.Structure):
    _fields_ = [("run", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class Rounds(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_double), ("least", ctypes.c_size_t), ("most", ctypes.c_size_t)] + [
        (name, ctypes.c_double) for name in ("burst", "pause")
    ]


MOST = 2000


class Clock:
    """measure.hpp's rounds, interleaved."""

    def __init__(self, host: pathlib.Path, seconds: float, threads: int):
        self.measure = ctypes.CDLL(str(host)).bench_measure
        self.measure.restype = ctypes.c_int
        # Other libraries' threads go on waiting for work for some milliseconds, on the processors of the next one.
        self.rounds = Rounds(seconds, 7, MOST, 2e-4, 0.03 if threads > 1 else 0.0)

    def times(self, rivals: list[Rival]) -> tuple[np.ndarray, np.ndarray]:
        """Seconds a call, wall and processor: one row for each rival, one column for each round."""
        works = (Work * len(rivals))(*(Work(rival.function, rival.context) for rival in rivals))
        wall, cpu = np.zeros((len(rivals), MOST)), np.zeros((len(rivals), MOST))
        pointers = (array.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for array in (wall, cpu))
        done = self.measure(works, len(rivals), ctypes.byref(self.rounds), *pointers, MOST)
        if done <= 0:
            raise RuntimeError("the clock refuses")
        return wall[:, :done], cpu[:, :done]


def quartiles(values: np.ndarray) -> list[float]:
    return [float(value) for value in np.quantile(values, [0.25, 0.5, 0.75])]


class Worker:
    def __init__(self, settings: dict):
        self.threads = settings["threads"]
        self.clock = Clock(pathlib.Path(settings["host"]), settings["seconds"], self.threads)
        self.copies = Library(pathlib.Path(settings["copies"]))
        self.libraries = {name: Library(pathlib.Path(path)) for name, path in settings["libraries"].items()}
        self.onnxruntime = settings["onnxruntime"]

    def rivals(self, inputs: Inputs, outputs: Outputs) -> list[Rival]:
        """evenorm first."""
        if inputs.point.form.startswith("torch-"):
            return through_torch(inputs, outputs)
        made: list[Rival | None] = [library.make(name, inputs, outputs) for name, library in self.libraries.items()]
        if self.onnxruntime:
            made.append(onnxruntime(inputs, outputs))
        return [rival for rival in made if rival]

    def measured(self, point: Point) -> dict:
        inputs = Inputs(point, self.threads)
        outputs = Outputs(point, inputs.parameters)
        rivals = self.rivals(inputs, outputs)
        digests = {}
        for rival in rivals:
            outputs.spoil()
            rival.call()
            rival.fetch()
            verify(rival.name, inputs, outputs)
            if "against" in self.libraries:
                digests[rival.name] = outputs.digest()
        # Of two builds of evenorm, where there are two.
        same = digests["evenorm"] == digests["against"] if len(digests) == 2 else None
        rivals += self.copies.copies(inputs, outputs)
        wall, cpu = self.clock.times(rivals)
        counted = wall if self.threads > 1 else cpu
        result = {
            "point": dataclasses.asdict(point),
            "rounds": wall.shape[1],
            "same_bits": same,
            "rivals": {},
            "ratios": {},
        }
        best = best_copy(rivals, counted)
        for i, rival in enumerate(rivals):
            if rival.name.startswith("copy:") and i != best:
                continue
            name = rival.name.partition(":")[0]
            result["rivals"][name] = {
                "wall_us": statistics.median(wall[i]) * 1e6,
                "cpu_us": statistics.median(cpu[i]) * 1e6,
            }
            if name == "copy":
                result["rivals"][name]["which"] = rival.name.partition(":")[2]
            if i:
                result["ratios"][name] = quartiles(counted[i] / counted[0])
        for rival in rivals:
            rival.close()
        return result


def best_copy(rivals: list[Rival], times: np.ndarray) -> int | None:
    copies = [i for i, rival in enumerate(rivals) if rival.name.startswith("copy:")]
    return min(copies, key=lambda i: statistics.median(times[i]), default=None)


def main() -> int:
    settings = json.loads(sys.stdin.readline())
    worker = Worker(settings)
    versions = {name: library.version for name, library in worker.libraries.items()}
    print(json.dumps({"versions": versions}), flush=True)
    for fields in settings["points"]:
        try:
            print(json.dumps(worker.measured(Point(**fields))), flush=True)
        except Wrong as wrong:
            print(json.dumps({"wrong": str(wrong)}), flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

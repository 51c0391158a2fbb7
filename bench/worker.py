"""Measures points in one process, with one number of threads and one target.

run.py starts it with the environment that holds all libraries to the target. It reads its task as one line of JSON and
prints one line for each point: {"point": ..., "rivals": {name: {"wall_us", "cpu_us"}}, "ratios": {name: [low, median,
high]}}.
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
    """The interleaved rounds of measure.hpp."""

    def __init__(self, host: pathlib.Path, seconds: float, threads: int):
        self.measure = ctypes.CDLL(str(host)).bench_measure
        self.measure.restype = ctypes.c_int
        # The pause lets other libraries' threads stop spinning, which takes some milliseconds.
        self.rounds = Rounds(seconds, 7, MOST, 2e-4, 0.03 if threads > 1 else 0.0)

    def times(self, rivals: list[Rival]) -> tuple[np.ndarray, np.ndarray]:
        """Wall and processor seconds per call: a row for each rival, a column for each round."""
        works = (Work * len(rivals))(*(Work(rival.function, rival.context) for rival in rivals))
        wall, cpu = np.zeros((len(rivals), MOST)), np.zeros((len(rivals), MOST))
        pointers = (array.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for array in (wall, cpu))
        done = self.measure(works, len(rivals), ctypes.byref(self.rounds), *pointers, MOST)
        if done <= 0:
            raise RuntimeError("bench_measure has run no round")
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
        """All libraries that have the point's pass; evenorm is the first."""
        if inputs.point.form.startswith("torch-"):
            return through_torch(inputs, outputs)
        made: list[Rival | None] = [library.make(name, inputs, outputs) for name, library in self.libraries.items()]
        if self.onnxruntime:
            made.append(onnxruntime(inputs, outputs))
        return [rival for rival in made if rival]

    def measured(self, point: Point) -> dict:
        """Checks all rivals, then times them. Raises Wrong."""
        inputs = Inputs(point, self.threads)
        outputs = Outputs(point, inputs.parameters)
        rivals = self.rivals(inputs, outputs)
        digests = {rival.name: self.checked(rival, inputs, outputs) for rival in rivals}
        same = digests["evenorm"] == digests["against"] if "against" in digests else None
        rivals += self.copies.copies(inputs, outputs)
        wall, cpu = self.clock.times(rivals)
        result = {"point": dataclasses.asdict(point), "rounds": wall.shape[1], "same_bits": same}
        result |= self.compared(rivals, wall, cpu)
        for rival in rivals:
            rival.close()
        return result

    def checked(self, rival: Rival, inputs: Inputs, outputs: Outputs) -> bytes | None:
        """Raises Wrong if the rival's results are wrong. Returns their digest if two builds are compared."""
        outputs.spoil()
        rival.call()
        rival.fetch()
        verify(rival.name, inputs, outputs)
        return outputs.digest() if "against" in self.libraries else None

    def compared(self, rivals: list[Rival], wall: np.ndarray, cpu: np.ndarray) -> dict:
        """Each rival's median times, and its ratios to evenorm, the first rival. Of the copies, only the fastest counts."""
        counted = wall if self.threads > 1 else cpu
        best = best_copy(rivals, counted)
        times, ratios = {}, {}
        for i, rival in enumerate(rivals):
            name, _, which = rival.name.partition(":")
            if name == "copy" and i != best:
                continue
            medians = (statistics.median(seconds[i]) * 1e6 for seconds in (wall, cpu))
            times[name] = dict(zip(("wall_us", "cpu_us"), medians, strict=True)) | ({"which": which} if which else {})
            if i:
                ratios[name] = quartiles(counted[i] / counted[0])
        return {"rivals": times, "ratios": ratios}


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

"""Measures evenorm beside oneDNN, PyTorch, ONNX Runtime, zentorch and plain copies, after checking all results.

The rivals take turns in one process, round by round, on the same buffers. There is one process for each number of threads
and each SIMD target. A ratio is the rival's time over evenorm's (above 1: evenorm is faster), as the median of the rounds'
ratios. "Of copy" is the time of the fastest copy of the same bytes over evenorm's. Ratios are of processor time with one
thread, and of wall time with more.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import against
import allocator
import floors
import machine
import outcomes
import report
import table
from points import DATA, DTYPES, FORMS, KINDS, LARGEST, ROOT, Point, all_points, chosen, quick_points

BUILT = ROOT / "build" / "bench"
RIVALS = tuple(name for name in outcomes.RIVALS if name != "against")
EXAMPLES = """examples:
  make bench                                          everything, in half an hour; results in build/bench/results
  make bench ARGS="--forms forward --dtypes f32 --threads 1 --targets native"
  make bench ARGS="--sizes 4096x768 --runs 3"
  make bench ARGS="--against HEAD~1"                  two builds of evenorm in one process
  make bench-quick                                    three minutes; status 1 if a ratio is below bench/floors.json"""
TARGETS = {
    "native": {},
    "avx2": {"EVENORM_TARGET": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
}


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} should be at least 1")
    return number


def size(text: str) -> tuple[int, int]:
    try:
        rows, cols = (int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} should be as in 512x768") from None
    if rows < 1 or cols < 1 or rows * cols * 8 > LARGEST:
        raise argparse.ArgumentTypeError(f"{text} should have from 1 to {LARGEST // 8} elements")
    return rows, cols


def machine_targets() -> list[str]:
    """The machine's own target, and AVX2 if the machine has AVX-512."""
    return list(TARGETS) if "avx512f" in machine.cpuinfo().get("flags", "").split() else ["native"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, choices in (("forms", FORMS), ("kinds", KINDS), ("dtypes", DTYPES), ("data", DATA), ("rivals", RIVALS)):
        parser.add_argument(
            f"--{name}", nargs="+", choices=choices, metavar="NAME", help=f"{', '.join(choices)} (default: all)"
        )
    parser.add_argument("--sizes", nargs="+", type=size, metavar="ROWSxCOLS", help="instead of the usual sizes")
    parser.add_argument("--seed", type=int, default=random.getrandbits(32), help="of the drawn sizes (default: new)")
    parser.add_argument("--threads", nargs="+", type=positive, default=[1, 2], metavar="N")
    parser.add_argument(
        "--targets", nargs="+", choices=TARGETS, default=machine_targets(), help="avx2: limits all libraries to AVX2"
    )
    parser.add_argument("--seconds", type=float, help="time to measure each point")
    parser.add_argument("--runs", type=positive, default=1, help="number of runs, each in new processes")
    parser.add_argument("--against", metavar="REF", help="measures another commit of evenorm, and no other rival")
    parser.add_argument("--quick", action="store_true", help="few points; compares them with bench/floors.json")
    parser.add_argument("--set-floors", action="store_true", help="with --quick: writes the floors instead")
    parser.add_argument("--output", type=pathlib.Path, default=BUILT / "results", help="folder for the results")
    parser.add_argument("--json", action="store_true", help="prints the results as JSON, not as a table")
    return parser.parse_args()


@dataclasses.dataclass(frozen=True)
class Setting:
    threads: int
    target: str

    def environment(self) -> dict[str, str]:
        return {**os.environ, **allocator.KEEPS_MEMORY, **TARGETS[self.target], "OMP_NUM_THREADS": str(self.threads)}


def libraries(arguments) -> dict[str, str]:
    """{name: path}, evenorm first."""
    if arguments.against:
        return {"evenorm": str(against.build(ROOT)), "against": str(against.build_of(arguments.against))}
    found = {name: BUILT / f"rival_{name}.so" for name in ("evenorm", *RIVALS)}
    wanted = {"evenorm", *(arguments.rivals or found)}
    return {name: str(path) for name, path in found.items() if name in wanted and path.exists()}


def has_onnxruntime(arguments) -> bool:
    if arguments.against or (arguments.rivals and "onnxruntime" not in arguments.rivals):
        return False
    import importlib.util

    return all(importlib.util.find_spec(name) for name in ("onnxruntime", "onnx"))


class MeasuringEnded(Exception):
    """A measuring process found wrong results, or died."""


class Bench:
    """Starts the measuring processes and collects their results."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.libraries = libraries(arguments)
        self.columns = ("against",) if arguments.against else table.COLUMNS
        self.onnxruntime = has_onnxruntime(arguments)
        self.seconds = arguments.seconds or (0.25 if arguments.quick else 0.4)
        self.settings = [Setting(threads, target) for threads in arguments.threads for target in arguments.targets]
        options = {name: str(value) if name == "output" else value for name, value in vars(arguments).items()}
        self.entries: dict[tuple[Point, Setting], dict] = {}
        self.results = {"machine": machine.describe(), "settings": options, "versions": {}, "points": []}
        self.count, self.done = arguments.runs * sum(len(self.points(setting)) for setting in self.settings), 0

    def points(self, setting: Setting) -> list[Point]:
        arguments = self.arguments
        points = chosen(quick_points(setting.threads) if arguments.quick else all_points(arguments.seed), arguments)
        if arguments.against:
            points = [point for point in points if not point.form.startswith("torch-")]
        return points

    def run(self) -> None:
        for _ in range(self.arguments.runs):
            for setting in self.settings:
                self.run_setting(setting)

    def run_setting(self, setting: Setting) -> None:
        points = self.points(setting)
        libraries = {**self.libraries}
        if setting.target != "native":
            libraries.pop("zentorch", None)  # its norms need AVX-512
        task = {
            "threads": setting.threads, "seconds": self.seconds, "host": str(BUILT / "libevenorm_bench_host.so"),
            "copies": str(BUILT / "rival_copies.so"), "libraries": libraries, "onnxruntime": self.onnxruntime,
            "points": [dataclasses.asdict(point) for point in points],
        }  # fmt: skip
        command = [sys.executable, str(pathlib.Path(__file__).with_name("worker.py"))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes, env=setting.environment()) as worker:
            try:
                worker.stdin.write(json.dumps(task) + "\n")
                worker.stdin.close()
                for line in worker.stdout:
                    self.take(json.loads(line), setting)
            except KeyboardInterrupt:
                worker.kill()
                raise
        if worker.returncode:
            raise MeasuringEnded(f"the measuring process ended with status {worker.returncode}")

    def take(self, answer: dict, setting: Setting) -> None:
        """Keeps one line of a measuring process."""
        if "versions" in answer:
            self.results["versions"].update(answer["versions"])
            return
        self.show_progress("")
        if "wrong" in answer:
            print(f"wrong results, nothing more is measured: {answer['wrong']}", file=sys.stderr)
            return
        point = Point(**answer.pop("point"))
        entry = self.entry(point, setting)
        entry["runs"].append(answer)
        self.done += 1
        if not self.arguments.json and self.arguments.runs == 1:
            print(table.line(entry, self.columns), flush=True)
        if self.done < self.count:
            self.show_progress(f"{self.done} of {self.count} points")

    def show_progress(self, text: str) -> None:
        """Replaces the progress line on a terminal; prints nothing to a pipe."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def entry(self, point: Point, setting: Setting) -> dict:
        """The entry that holds the point's runs."""
        if (point, setting) not in self.entries:
            self.entries[point, setting] = {
                **dataclasses.asdict(point), "size": point.size, "bytes": point.traffic, "threads": setting.threads,
                "target": setting.target, "forced": setting.target != "native", "runs": [],
            }  # fmt: skip
            self.results["points"].append(self.entries[point, setting])
        return self.entries[point, setting]


def write_text(text: str, file: pathlib.Path) -> None:
    """Replaces the file by the whole text, or leaves it unchanged."""
    unfinished = file.with_name(file.name + ".part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)


def write(document: dict, folder: pathlib.Path) -> None:
    """Writes results.json first, then the plots and tables that are made from it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps(document, indent=1) + "\n", folder / "results.json")
    import plots  # needs matplotlib, so it comes after the results are saved

    results = outcomes.Results(document)
    pictures = plots.draw(results, folder / "plots")
    write_text(report.document(results, pictures, "plots"), folder / "report.md")
    print(f"{len(pictures)} plots, tables and results.json: {folder / 'report.md'}", file=sys.stderr)


def interrupt(*_) -> None:
    raise KeyboardInterrupt


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, interrupt)  # the measuring process ends with this one
    bench = Bench(arguments)
    if not arguments.json:
        print(f"{machine.title(bench.results['machine'])}, --seed {arguments.seed}")
        print(table.header(bench.columns))
    status = 0
    try:
        bench.run()
    except KeyboardInterrupt:
        status = 130
    except MeasuringEnded as ended:
        print(ended, file=sys.stderr)
        status = 1
    bench.results["complete"] = status == 0
    bench.show_progress("")
    if arguments.json:
        print(json.dumps(bench.results))
    elif arguments.runs > 1:
        for entry in bench.results["points"]:
            print(table.line(entry, bench.columns))
    if arguments.against or (arguments.quick and status):
        return status
    if arguments.quick and arguments.set_floors:
        return floors.write(bench.results)
    if arguments.quick:
        return floors.check(bench.results, sys.stderr if arguments.json else None)
    write(bench.results, arguments.output)  # also after an interruption
    return status


if __name__ == "__main__":
    sys.exit(main())

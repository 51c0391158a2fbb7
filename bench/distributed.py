"""Times layer norm of rows whose columns are split over processes (evenorm.torch.distributed) beside gathering x.

The rival gathers the columns of x, or of dy in the backward pass, and normalises whole rows with evenorm.torch.layer_norm.
Both run over gloo on this machine, in float32, with one thread per process. The bytes that each process sends are counted
in the calls of the process group.

    .venv/bin/python bench/distributed.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import allocator
import machine
import report
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

import evenorm.torch
import evenorm.torch.distributed as sharded

BLOCK = 1024  # splits at its multiples keep the bits
GATHERS = ("_allgather_base", "all_gather_single")  # names of the process group's method in older and newer PyTorch
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
PASSES = ("forward", "backward")
WAYS = ("sharded", "gathered")
SETTLED = 20  # after that many passes of a kind, each pass needs one exchange


def cuts(columns: int, processes: int) -> list[int]:
    """The columns of each process, as even as whole blocks allow. Narrow rows are split evenly."""
    unit = BLOCK if columns >= BLOCK * processes else 1
    units, more = divmod(columns // unit, processes)
    return [(units + (i < more)) * unit for i in range(processes)]


class Case:
    """Both passes, sharded and gathered, of this process's columns of one x."""

    def __init__(self, rows: int, columns: list[int], rank: int):
        generator = torch.Generator().manual_seed(rank)
        self.columns = columns
        first = sum(columns[:rank])
        self.own = slice(first, first + columns[rank])
        self.x, self.dy = (torch.randn(rows, columns[rank], generator=generator) for _ in range(2))
        self.x.requires_grad_()
        self.weight = torch.ones(sum(columns)).requires_grad_()
        self.bias = torch.zeros(sum(columns)).requires_grad_()
        self.own_weight, self.own_bias = (t.detach()[self.own].requires_grad_() for t in (self.weight, self.bias))
        self.y: Tensor | None = None
        self.kept: tuple[Tensor, Tensor] | None = None
        for step in self.steps().values():  # agrees on both passes, and saves what backward passes need
            step()

    def steps(self) -> dict[str, Callable[[], Any]]:
        return {f"{way} {a_pass}": getattr(self, f"{way}_{a_pass}") for a_pass in PASSES for way in WAYS}

    def sharded_forward(self) -> Tensor:
        self.y = sharded.sharded_layer_norm(self.x, self.own_weight, self.own_bias)
        return self.y

    def sharded_backward(self) -> Any:
        leaves = (self.x, self.own_weight, self.own_bias)
        return torch.autograd.grad(self.y, leaves, self.dy, retain_graph=True)

    def gathered_forward(self) -> Tensor:
        whole = self.gathered(self.x.detach()).requires_grad_()
        self.kept = whole, evenorm.torch.layer_norm(whole, whole.shape[1:], self.weight, self.bias)
        return self.kept[1][:, self.own]

    def gathered_backward(self) -> Any:
        whole, y = self.kept
        leaves = (whole, self.weight, self.bias)
        dx, dweight, dbias = torch.autograd.grad(y, leaves, self.gathered(self.dy), retain_graph=True)
        return dx[:, self.own], dweight[self.own], dbias[self.own]

    def gathered(self, t: Tensor) -> Tensor:
        """All columns of a tensor whose columns are split. Zeros pad the parts to equal widths."""
        if len(self.columns) == 1:
            return t.clone()
        most = max(self.columns)
        padded = torch.nn.functional.pad(t, (0, most - t.shape[1]))
        parts = t.new_empty((len(self.columns), t.shape[0], most))
        all_gather(parts.flatten(0, 1), padded)
        if min(self.columns) == most:
            return parts.transpose(0, 1).reshape(t.shape[0], -1)
        return torch.cat([part[:, :n] for part, n in zip(parts, self.columns, strict=True)], dim=1)


@contextlib.contextmanager
def counted(found: list[int]) -> Iterator[None]:
    """Appends the bytes that this process passes to each all-gather of its process group."""
    methods = vars(dist.ProcessGroup)  # unbound, as getattr would not have them
    originals = {name: methods[name] for name in GATHERS if name in methods}

    def watched(original: Any) -> Any:
        def call(group: Any, *arguments: Any) -> Any:
            own: Tensor = arguments[1]
            found.append(own.numel() * own.element_size())
            return original.__get__(group)(*arguments)

        return call

    for name, original in originals.items():
        setattr(dist.ProcessGroup, name, watched(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(dist.ProcessGroup, name, original)


def what_is_sent(case: Case) -> dict[str, Any]:
    """The messages and bytes of each pass."""
    found = {}
    for name, step in case.steps().items():
        for _ in range(SETTLED):
            step()
        seen: list[int] = []
        with counted(seen):
            step()
        found[name] = {"messages": len(seen), "bytes": sum(seen)}
        dist.barrier()
    return found


def times_of(case: Case, rounds: int, budget: float) -> dict[str, Any]:
    """The median seconds of each pass, and the medians of the paired ratios of both ways.

    The passes take turns, round by round. A time is that of the slowest process.
    """

    def timed(step: Callable[[], Any], calls: int) -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            step()
        seconds = torch.tensor((time.perf_counter() - start) / calls, dtype=torch.float64)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        return seconds.item()

    steps = case.steps()
    calls = {name: max(1, min(200, int(budget / timed(step, 2)))) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(timed(step, calls[name]))
    found: dict[str, Any] = {name: statistics.median(seconds) for name, seconds in times.items()}
    for a_pass in PASSES:
        pairs = zip(times[f"gathered {a_pass}"], times[f"sharded {a_pass}"], strict=True)
        found[f"ratio {a_pass}"] = statistics.median(theirs / ours for theirs, ours in pairs)
    return found


def work(rank: int, processes: int, folder: str, quick: bool) -> None:
    """Measures in one process of a group; the first process writes the results."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/store{processes}", processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes)
    found: list[dict[str, Any]] = []
    for columns in (8192,) if quick else (4096, 8192):
        for rows in (8, 64) if quick else (8, 64, 512, 4096):
            case = Case(rows, cuts(columns, processes), rank)
            rounds = 3 if rows == 4096 else 5 if quick else 11
            measured = {"sent": what_is_sent(case), "times": times_of(case, rounds, 0.02)}
            found.append({"processes": processes, "rows": rows, "columns": case.columns, **measured})
    if rank == 0:
        Path(folder, f"found{processes}").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def show(cases: list[dict[str, Any]]) -> None:
    print("Bytes that each process passes to all-gathers in one pass, bytes per row, and messages.\n")
    rows = []
    for case in cases:
        for a_pass in PASSES:
            cells = [str(case["processes"]), "+".join(map(str, case["columns"])), str(case["rows"]), a_pass]
            for way in WAYS:
                sent = case["sent"][f"{way} {a_pass}"]
                cells += [f"{sent['bytes']:,}", f"{sent['bytes'] / case['rows']:,.0f}", str(sent["messages"])]
            rows.append(cells)
    each = "bytes | per row | messages"
    heads = f"processes | columns | rows | pass | sharded: {each} | gathered: {each}"
    print(report.markdown(heads.split(" | "), rows))
    print("Times in microseconds; ratio: gathering x over sharded, median of paired rounds.\n")
    rows = []
    for case in cases:
        cells = [str(case["processes"]), str(sum(case["columns"])), str(case["rows"])]
        for a_pass in PASSES:
            cells += [report.time(1e6 * case["times"][f"{way} {a_pass}"]) for way in WAYS]
            cells.append(f"{case['times'][f'ratio {a_pass}']:.2f}")
        rows.append(cells)
    each = "sharded | gathered | ratio"
    print(report.markdown(f"processes | columns | rows | forward: {each} | backward: {each}".split(" | "), rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also writes the results to a file")
    parser.add_argument("--quick", action="store_true", help="1 and 2 processes, few rows, few rounds")
    options = parser.parse_args()
    allocator.restart_with_it()
    found: dict[str, Any] = {"machine": machine.describe(), "torch": torch.__version__, "cases": []}
    print(f"{machine.title(found['machine'])}; PyTorch {torch.__version__}; gloo over loopback\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for processes in (1, 2) if options.quick else (1, 2, 3, 4):
            torch.multiprocessing.spawn(work, (processes, folder, options.quick), nprocs=processes)
            found["cases"] += json.loads(Path(folder, f"found{processes}").read_text(encoding="utf-8"))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    show(found["cases"])


if __name__ == "__main__":
    main()

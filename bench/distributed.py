"""Times layer norm of rows whose columns are split over processes (evenorm.torch.distributed) beside gathering x.

The rival gathers x's columns (backward: dy's; x's whole rows it has kept), and then normalises whole rows by itself with
evenorm.torch.layer_norm. Both run over gloo on this machine, float32, one thread a process. What each process sends is
counted where the process group is called, and on the loopback device. From the times of all-gathers, and those of the
arithmetic with the exchange left out, a model says what other networks would make of it.

    .venv/bin/python bench/distributed.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import allocator
import machine
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

import evenorm
import evenorm.torch
import evenorm.torch.distributed as sharded
from evenorm import _core
from evenorm.torch import _sharded_group

BLOCK = 1024  # cuts at its multiples keep the bits
COLLECTIVES = (
    "_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_to_all_single", "allgather",
    "allgather_coalesced", "allreduce", "allreduce_coalesced", "alltoall", "alltoall_base", "broadcast", "gather",
    "recv", "reduce", "reduce_scatter", "reduce_scatter_single", "scatter", "send",
)  # fmt: skip
GATHERS = ("_allgather_base", "all_gather_single")  # of PyTorch before it renames it, and after
PASSES = ("forward", "backward")
WAYS = ("sharded", "gathered")
# Assumed: name, seconds of a step, bytes a second that a process sends.
NETWORKS = (
    ("10 Gb/s, 30 us", 30e-6, 1.25e9),
    ("100 Gb/s, 5 us", 5e-6, 12.5e9),
    ("200 Gb/s, 2 us", 2e-6, 25e9),
)
LATENCIES: dict[str, Callable[[int], int]] = {
    "ring": lambda processes: processes - 1,
    "doubling": lambda processes: math.ceil(math.log2(processes)),
}
MODEL_COLUMNS = 8192
MANY = 20  # passes of a kind, after which one exchange fits them
HEAD = 48  # bytes of a PyTorch pass's one message beside its numbers
EXACT = (200, 24)  # bytes of a C++ pass's one message: always, and for each row
EACH = {"forward": 24, "backward": 16}  # of a PyTorch pass's, for each row


# --- the two ways, in one process of a group


def cuts(columns: int, processes: int) -> list[int]:
    """As even as cuts at blocks get; narrow rows are cut evenly."""
    unit = BLOCK if columns >= BLOCK * processes else 1
    units, more = divmod(columns // unit, processes)
    return [(units + (i < more)) * unit for i in range(processes)]


Gather = Callable[[Tensor, Tensor], Any]


class Case:
    """Both passes, both ways, of this process's columns of one x."""

    def __init__(self, rows: int, columns: list[int], rank: int, gather: Gather):
        generator = torch.Generator().manual_seed(rank)
        self.columns, self.gather = columns, gather
        first = sum(columns[:rank])
        self.own = slice(first, first + columns[rank])
        self.x, self.dy = (torch.randn(rows, columns[rank], generator=generator) for _ in range(2))
        self.x.requires_grad_()
        self.weight = torch.ones(sum(columns)).requires_grad_()
        self.bias = torch.zeros(sum(columns)).requires_grad_()
        self.own_weight, self.own_bias = (t.detach()[self.own].requires_grad_() for t in (self.weight, self.bias))
        self.y: Tensor | None = None
        self.kept: tuple[Tensor, Tensor] | None = None

    def prepare(self) -> None:
        """Agrees on both passes, and leaves what backward passes need."""
        for way in WAYS:
            for a_pass in PASSES:
                getattr(self, f"{way}_{a_pass}")()

    def sharded_forward(self) -> Tensor:
        self.y = sharded.sharded_layer_norm(self.x, self.own_weight, self.own_bias)
        return self.y

    def sharded_backward(self) -> Any:
        leaves = (self.x, self.own_weight, self.own_bias)
        return torch.autograd.grad(self.y, leaves, self.dy, retain_graph=True)

    def gathered_forward(self) -> Tensor:
        whole = self._whole(self.x.detach()).requires_grad_()
        self.kept = whole, evenorm.torch.layer_norm(whole, whole.shape[1:], self.weight, self.bias)
        return self.kept[1][:, self.own]

    def gathered_backward(self) -> Any:
        whole, y = self.kept
        dx, dweight, dbias = torch.autograd.grad(
            y, (whole, self.weight, self.bias), self._whole(self.dy), retain_graph=True
        )
        return dx[:, self.own], dweight[self.own], dbias[self.own]

    def _whole(self, t: Tensor) -> Tensor:
        """All columns of a tensor of which this process has some; sizes are made alike with zeros."""
        if len(self.columns) == 1:
            return t.clone()
        most = max(self.columns)
        padded = t if t.shape[1] == most else torch.nn.functional.pad(t, (0, most - t.shape[1]))
        parts = t.new_empty((len(self.columns), t.shape[0], most))
        received = self.gather(parts, padded)
        parts = parts if received is None else received
        if min(self.columns) == most:
            return parts.transpose(0, 1).reshape(t.shape[0], -1)
        return torch.cat([part[:, :n] for part, n in zip(parts, self.columns, strict=True)], dim=1)


def gather_by_group(parts: Tensor, own: Tensor) -> None:
    _sharded_group.all_gather(parts.flatten(0, 1), own)


class Steps:
    """The same arithmetic called without PyTorch, as C++ has it but for some microseconds of Python's: evenorm._core's
    steps of a sharded pass, and the NumPy functions on whole rows. All processes are given this one's message."""

    def __init__(self, case: Case):
        self.x, self.dy, self.weight, self.bias = (
            t.detach().numpy() for t in (case.x, case.dy, case.own_weight, case.own_bias)
        )
        self.place = (case.columns, 0, False)
        self.received: dict[str, Any] = {}
        self.parts = np.tile(self.x, (len(case.columns), 1, 1))
        self.whole_weight, self.whole_bias = case.weight.detach().numpy(), case.bias.detach().numpy()
        self.sharded_forward()
        self.gathered_forward()

    def _all(self, a_pass: str, message: Any) -> Any:
        if a_pass not in self.received:
            self.received[a_pass] = np.tile(message, (len(self.place[0]), 1))
        return self.received[a_pass]

    def sharded_forward(self) -> None:
        messages = self._all("forward", _core.sharded_moments(False, self.x, *self.place, 1e-5))
        y = np.empty_like(self.x)
        _, self.moments = _core.sharded_norm(False, self.x, messages, *self.place, self.weight, self.bias, 1e-5, y)

    def sharded_backward(self) -> None:
        out = (np.empty_like(self.x), np.empty_like(self.weight), np.empty_like(self.bias))
        given = (False, self.dy, self.x, self.moments)
        sums = _core.sharded_sums(*given, *self.place, self.weight, 1e-5, out)
        messages = self._all("backward", sums)
        _core.sharded_backward(*given, messages, *self.place, self.weight, 1e-5, out)

    def _whole(self) -> Any:
        return self.parts.swapaxes(0, 1).reshape(len(self.x), -1)

    def gathered_forward(self) -> None:
        self.whole = self._whole()
        evenorm.layer_norm(self.whole, MODEL_COLUMNS, self.whole_weight, self.whole_bias)

    def gathered_backward(self) -> None:
        evenorm.layer_norm_backward(self._whole(), self.whole, MODEL_COLUMNS, self.whole_weight)


# --- what is sent


@contextlib.contextmanager
def counted(found: list[tuple[str, int]]) -> Iterator[None]:
    """Adds (its name, the bytes that this process gives it) for each collective that the process group is asked for."""
    methods = vars(dist.ProcessGroup)  # as they are there: getattr would unbind them
    originals = {name: methods[name] for name in COLLECTIVES if name in methods}

    def watched(name: str, original: Any) -> Any:
        def call(group: Any, *arguments: Any) -> Any:
            given = arguments[1] if name in GATHERS else arguments
            tensors = [t for t in torch.utils._pytree.tree_leaves(given) if isinstance(t, Tensor)]
            found.append((name, sum(t.numel() * t.element_size() for t in tensors)))
            return original.__get__(group)(*arguments)

        return call

    for name, original in originals.items():
        setattr(dist.ProcessGroup, name, watched(name, original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(dist.ProcessGroup, name, original)


def loopback_bytes() -> int:
    """All that this machine has sent to itself."""
    lines = Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[9]) for line in lines if line.strip().startswith("lo:")), 0)


def what_is_sent(case: Case, calls: int = 2) -> dict[str, Any]:
    found = {}
    case.prepare()
    for way in WAYS:
        for a_pass in PASSES:
            step = getattr(case, f"{way}_{a_pass}")
            for _ in range(MANY):
                step()
            seen: list[tuple[str, int]] = []
            with counted(seen):
                step()
            assert all(name in GATHERS for name, _ in seen), seen
            dist.barrier()
            before = loopback_bytes()
            dist.barrier()
            for _ in range(calls):
                step()
            dist.barrier()
            on_loopback = (loopback_bytes() - before) / calls / len(case.columns)
            found[f"{way} {a_pass}"] = {
                "messages": len(seen),
                "bytes": sum(size for _, size in seen),
                "loopback_bytes": on_loopback,  # of all processes, for each; barriers and headers among them
            }
            dist.barrier()
    return found


# --- times


def in_turns(steps: dict[str, Callable[[], Any]], rounds: int, budget: float) -> dict[str, list[float]]:
    """Seconds of each step, round by round; the longest of all processes."""

    def timed(step: Callable[[], Any], calls: int) -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            step()
        seconds = torch.tensor((time.perf_counter() - start) / calls, dtype=torch.float64)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        return seconds.item()

    calls = {}
    for name, step in steps.items():
        timed(step, 2)
        calls[name] = max(1, min(200, int(budget / timed(step, 2))))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(timed(step, calls[name]))
    return times


def compared(times: dict[str, list[float]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: statistics.median(seconds) for name, seconds in times.items()}
    for a_pass in PASSES:
        pairs = zip(times[f"gathered {a_pass}"], times[f"sharded {a_pass}"], strict=True)
        found[f"ratio {a_pass}"] = statistics.median(theirs / ours for theirs, ours in pairs)
    return found


def times_of(case: Case | Steps, rounds: int, budget: float) -> dict[str, Any]:
    if isinstance(case, Case):
        case.prepare()
    steps = {f"{way} {a_pass}": getattr(case, f"{way}_{a_pass}") for a_pass in PASSES for way in WAYS}
    return compared(in_turns(steps, rounds, budget))


def gather_times(sizes: list[int], rounds: int, budget: float) -> dict[int, float]:
    """Seconds of an all-gather of so many bytes from each process."""
    steps = {}
    for size in sizes:
        own = torch.zeros(size, dtype=torch.uint8)
        parts = own.new_empty(size * dist.get_world_size())
        steps[str(size)] = functools.partial(_sharded_group.all_gather, parts, own)
    return {int(name): statistics.median(seconds) for name, seconds in in_turns(steps, rounds, budget).items()}


def work(rank: int, processes: int, folder: str, quick: bool) -> None:
    """What one process measures; the first one writes it down."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/store{processes}", processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes)
    rounds, budget = (5, 0.02) if quick else (11, 0.02)
    found: dict[str, Any] = {"processes": processes, "cases": []}
    for columns in (8192,) if quick else (4096, 8192):
        for rows in (8, 64) if quick else (8, 64, 512, 4096):
            case = Case(rows, cuts(columns, processes), rank, gather_by_group)
            few = rounds if rows < 4096 else 3
            found["cases"].append(
                {
                    "rows": rows,
                    "columns": case.columns,
                    "sent": what_is_sent(case),
                    "times": times_of(case, few, budget),
                }
            )
            del case
    if processes > 1:
        sizes = [2**i for i in range(6, 17 if quick else 23, 2)]
        found["gathers"] = gather_times(sizes, rounds, budget)
    if rank == 0:
        Path(folder, f"found{processes}").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


# --- the model: all-gathers of a network, and arithmetic measured here without one


def fit(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """alpha (P - 1) + beta (P - 1) bytes, such that the sum of squares of relative residuals is least."""
    points = [(one["processes"], int(size), t) for one in measured for size, t in one.get("gathers", {}).items()]
    table = torch.tensor([[(p - 1) / t, (p - 1) * size / t] for p, size, t in points], dtype=torch.float64)
    scale = table.norm(dim=0)
    alpha, beta = (
        torch.linalg.lstsq(table / scale, torch.ones(len(points), 1).double()).solution[:, 0] / scale
    ).tolist()
    residuals = [
        {"processes": p, "bytes": size, "seconds": t, "relative": (alpha + beta * size) * (p - 1) / t - 1}
        for p, size, t in points
    ]
    return {"alpha": alpha, "beta": beta, "residuals": residuals}


@contextlib.contextmanager
def pretended(processes: int, own: int) -> Iterator[Gather]:
    """This process is the first of so many, which are given at once what it would receive: copies of its own."""
    received: dict[Any, Tensor] = {}

    def copies(call: _sharded_group.Call, message: Tensor) -> Tensor:
        key = (message.shape, tuple(message[0, :2].tolist()))
        if key not in received:
            received[key] = message.expand(processes, -1).contiguous()
        received[key][:, :6] = message[:, :6]  # heads differ from call to call
        return received[key]

    def pretend(call: _sharded_group.Call, *arguments: Any, **what: Any) -> None:
        make(call, *arguments, **what)
        call.size = processes

    def copies_of_columns(parts: Tensor, own: Tensor) -> Tensor:
        key = (own.shape, own.data_ptr())
        if key not in received:
            received[key] = own.expand(processes, -1, -1).contiguous()
        return received[key]

    made: Any = _sharded_group.Call
    make, gather = made.__init__, made._gather
    _sharded_group._histories.clear()
    made.__init__, made._gather = pretend, copies
    try:
        yield copies_of_columns
    finally:
        made.__init__, made._gather = make, gather
        _sharded_group._histories.clear()


def without_network(quick: bool) -> list[dict[str, Any]]:
    """Times of both ways with the exchange left out."""
    found = []
    for processes in (8, 64) if quick else (8, 64, 256, 1024):
        own = MODEL_COLUMNS // processes
        for rows in (1, 64) if quick else (1, 64, 4096):
            with pretended(processes, own) as gather:
                case = Case(rows, [own] * processes, 0, lambda parts, t, gather=gather: gather(parts, t))
                rounds = 5 if quick or rows == 4096 else 11
                found.append({"processes": processes, "rows": rows, "times": times_of(case, rounds, 0.02)})
                found[-1]["steps"] = times_of(Steps(case), rounds, 0.02)
    return found


def messages_of(way: str, a_pass: str, processes: int, rows: int, exact: bool) -> list[int]:
    """The bytes of each all-gather of a pass, from each process; float32, evenly cut."""
    if way == "gathered":
        return [rows * MODEL_COLUMNS // processes * 4]
    if exact:
        return [EXACT[0] + rows * EXACT[1]]
    return [HEAD + rows * EACH[a_pass]]


def modelled(local: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seconds of each pass on each network, by both ways: "times" of PyTorch, "steps" of C++."""
    found = []
    for one in local:
        processes, rows = one["processes"], one["rows"]
        for network, alpha, speed in NETWORKS:
            for latency, steps in LATENCIES.items():
                row = {"processes": processes, "rows": rows, "network": network, "latency": latency}
                for called in ("times", "steps"):
                    for a_pass in PASSES:
                        for way in WAYS:
                            messages = messages_of(way, a_pass, processes, rows, called == "steps")
                            exchange = sum(
                                alpha * steps(processes) + (processes - 1) * size / speed for size in messages
                            )
                            row[f"{called} {way} {a_pass}"] = exchange + one[called][f"{way} {a_pass}"]
                found.append(row)
    return found


# --- what is printed


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f}" if seconds >= 1e-5 else f"{seconds * 1e6:.1f}"


def table(head: str, rows: list[list[str]]) -> None:
    names = head.split(" | ")
    print(f"| {head} |\n|{' ---: |' * len(names)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()


def show_measured(measured: list[dict[str, Any]]) -> None:
    print("What each process sends in one pass: bytes given to all-gathers, and how many; on the loopback device, with")
    print("headers and barriers, for each process.\n")
    rows = []
    for one in measured:
        for case in one["cases"]:
            for a_pass in PASSES:
                cells = [str(one["processes"]), "+".join(map(str, case["columns"])), str(case["rows"]), a_pass]
                for way in WAYS:
                    sent = case["sent"][f"{way} {a_pass}"]
                    cells += [f"{sent['bytes']:,}", f"{sent['bytes'] / case['rows']:,.0f}", str(sent["messages"])]
                    cells += [f"{sent['loopback_bytes']:,.0f}"]
                rows.append(cells)
    each = "bytes | a row | messages | loopback"
    table(f"processes | columns | rows | pass | sharded: {each} | gathered: {each}", rows)
    print("Times in microseconds; ratio: gathering x over sharded, median of paired rounds.\n")
    rows = []
    for one in measured:
        for case in one["cases"]:
            cells = [str(one["processes"]), str(sum(case["columns"])), str(case["rows"])]
            for a_pass in PASSES:
                cells += [shown(case["times"][f"{way} {a_pass}"]) for way in WAYS]
                cells.append(f"{case['times'][f'ratio {a_pass}']:.2f}")
            rows.append(cells)
    each = "sharded | gathered | ratio"
    table(f"processes | columns | rows | forward: {each} | backward: {each}", rows)


def show_model(found: dict[str, Any]) -> None:
    fitted = found["fit"]
    print(f"An all-gather here: (P - 1) ({fitted['alpha'] * 1e6:.1f} us + bytes / {1e-9 / fitted['beta']:.2f} GB/s).\n")
    table(
        "processes | bytes | us | model off by",
        [
            [str(r["processes"]), f"{r['bytes']:,}", shown(r["seconds"]), f"{r['relative']:+.0%}"]
            for r in fitted["residuals"]
        ],
    )
    print(
        f"Arithmetic of rows of {MODEL_COLUMNS} columns without exchange, microseconds; in brackets without PyTorch.\n"
    )
    rows = []
    for one in found["without_network"]:
        cells = [str(one["processes"]), str(one["rows"])]
        for a_pass in PASSES:
            for way in WAYS:
                cells.append(
                    " ".join(shown(one[c][f"{way} {a_pass}"]) for c in ("times", "steps")).replace(" ", " (") + ")"
                )
        rows.append(cells)
    each = " | ".join(f"{a_pass}: {way}" for a_pass in PASSES for way in WAYS)
    table(f"processes | rows | {each}", rows)
    print("Model, microseconds; ratio: gathering x over sharded. First as PyTorch does it, then C++.\n")
    rows = []
    for one in found["model"]:
        cells = [one["network"], one["latency"], str(one["processes"]), str(one["rows"])]
        for called in ("times", "steps"):
            for a_pass in PASSES:
                ours, theirs = (one[f"{called} {way} {a_pass}"] for way in WAYS)
                cells += [shown(ours), shown(theirs), f"{theirs / ours:.2f}"]
        rows.append(cells)
    each = " | ".join(f"{who}, {p}: sharded | gathered | ratio" for who in ("PyTorch", "C++") for p in PASSES)
    table(f"network | latency | processes | rows | {each}", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes all of it")
    parser.add_argument("--quick", action="store_true", help="1 and 2 processes, few rows, few rounds")
    options = parser.parse_args()
    allocator.restart_with_it()
    torch.set_num_threads(1)
    found: dict[str, Any] = {"machine": machine.describe(), "torch": torch.__version__, "measured": []}
    print(f"{machine.title(found['machine'])}; PyTorch {torch.__version__}; gloo over loopback\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for processes in (1, 2) if options.quick else (1, 2, 3, 4):
            torch.multiprocessing.spawn(work, (processes, folder, options.quick), nprocs=processes)
            found["measured"].append(json.loads(Path(folder, f"found{processes}").read_text(encoding="utf-8")))
        store = dist.FileStore(f"{folder}/store", 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        found["without_network"] = without_network(options.quick)
        dist.destroy_process_group()
    found["fit"] = fit(found["measured"])
    found["model"] = modelled(found["without_network"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    show_measured(found["measured"])
    show_model(found)


if __name__ == "__main__":
    main()

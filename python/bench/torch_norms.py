"""Times evenorm.torch's norms beside torch.nn's, in one process: forward alone, and forward with backward.

Rivals take turns, round by round; a row shows the median of each and the median of the paired ratios (PyTorch's time
over evenorm's: above 1 evenorm is faster). Every result is compared before anything is timed. Tensors over the
allocator's mmap threshold would cost more than the norm, for both, so the process starts itself anew with an allocator
that keeps memory.

    .venv/bin/python python/bench/torch_norms.py --threads 1 2 --dtypes f32 bf16
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
GRID = [
    (1, 64), (1, 768), (16, 64), (64, 768), (512, 64), (512, 768), (4096, 64), (4096, 768), (2048, 4096), (65536, 32),
    (64, 65536), (8192, 2048), (32768, 2048),
]  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python/bench/torch_norms.py --kinds rms --shapes 512x768 --json",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", choices=["f32", "bf16", "f16", "f64"], default=["f32", "bf16"])
    parser.add_argument("--kinds", nargs="+", choices=["layer", "rms", "add"], default=["layer"],
                        help="add: residual add and layer norm, beside x + residual and PyTorch's layer norm")  # fmt: skip
    parser.add_argument("--passes", nargs="+", choices=["forward", "both"], default=["forward", "both"])
    parser.add_argument("--shapes", nargs="+", metavar="ROWSxCOLS", help="instead of the grid")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--below", type=float, help="exit with status 1 where a ratio is below this")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each point")
    return parser.parse_args()


def calls(kind: str, cols: int, dtype, x, residual, dy) -> dict[str, Callable[[], list]]:
    """For PyTorch and for evenorm: one step, and what it computes."""
    import torch

    import evenorm.torch

    def step(norm, backward: bool):
        if not backward:
            return [norm(x)]
        for tensor in (x, *parameters):
            tensor.grad = None
        y = norm(x)
        y.backward(dy)
        return [y, x.grad, *(p.grad for p in parameters)]

    if kind == "add":
        theirs_norm = torch.nn.LayerNorm(cols, dtype=dtype)
        parameters = list(theirs_norm.parameters())
        weight, bias = parameters
        theirs = lambda x: theirs_norm(x + residual)  # noqa: E731
        ours = lambda x: evenorm.torch.add_layer_norm(x, residual, (cols,), weight, bias)[0]  # noqa: E731
    else:
        name = "LayerNorm" if kind == "layer" else "RMSNorm"
        theirs = getattr(torch.nn, name)(cols, dtype=dtype)
        ours = getattr(evenorm.torch, name)(cols, dtype=dtype)
        parameters = list(theirs.parameters())
        ours.weight = theirs.weight
        if kind == "layer":
            ours.bias = theirs.bias
    return {"torch": lambda backward: step(theirs, backward), "evenorm": lambda backward: step(ours, backward)}


def verify(steps, exact, backward: bool) -> None:
    """evenorm's results against the same in float64; PyTorch's own sums of 16-bit gradients are no measure."""
    for reference, ours in zip(exact["torch"](backward), steps["evenorm"](backward), strict=True):
        error = (reference - ours.double()).abs().max().item() / (reference.abs().max().item() + 1)
        if error > 2 * torch_eps(ours):
            sys.exit(f"a result is off by {error:.1e} of its largest element: nothing was timed")


def torch_eps(tensor) -> float:
    import torch

    return max(torch.finfo(tensor.dtype).eps, 2**-20 if tensor.dtype != torch.float64 else 0.0)


def measure(steps, backward: bool, rounds: int) -> tuple[float, float, float]:
    """Median seconds of PyTorch and evenorm, and the median of the rounds' ratios."""

    def seconds(step, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step(backward)
        return (time.perf_counter() - start) / count

    once = min(seconds(steps["torch"], 1) for _ in range(3))
    count = max(1, int(0.004 / once))
    theirs, ours = [], []
    for i in range(rounds):
        for name in ("torch", "evenorm") if i % 2 else ("evenorm", "torch"):
            (theirs if name == "torch" else ours).append(seconds(steps[name], count))
    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    return statistics.median(theirs), statistics.median(ours), statistics.median(ratios)


def main() -> int:
    arguments = parse_arguments()
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    import torch

    import evenorm.torch

    dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
    shapes = [tuple(map(int, shape.split("x"))) for shape in arguments.shapes] if arguments.shapes else GRID
    if not arguments.json:
        print(f"PyTorch {torch.__version__}, evenorm's operators in {evenorm.torch.info()['operators']}")
        print(
            f"{'kind':6}{'dtype':6}{'threads':>8}{'shape':>14}{'pass':>9}{'torch us':>12}{'evenorm us':>12}{'ratio':>8}"
        )
    worst = float("inf")
    for kind in arguments.kinds:
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            for dtype in arguments.dtypes:
                for rows, cols in shapes:
                    torch.manual_seed(0)
                    x = torch.randn(rows, cols, dtype=dtypes[dtype], requires_grad=True)
                    residual, dy = (torch.randn(rows, cols, dtype=dtypes[dtype]) for _ in range(2))
                    steps = calls(kind, cols, dtypes[dtype], x, residual, dy)
                    wide = [t.detach().double() for t in (x, residual, dy)]
                    exact = calls(kind, cols, torch.float64, wide[0].requires_grad_(), *wide[1:])
                    for a_pass in arguments.passes:
                        backward = a_pass == "both"
                        with torch.set_grad_enabled(backward):
                            verify(steps, exact, backward)
                            theirs, ours, ratio = measure(steps, backward, arguments.rounds)
                        worst = min(worst, ratio)
                        row = {"kind": kind, "dtype": dtype, "threads": threads, "rows": rows, "cols": cols,
                               "pass": a_pass, "torch_us": theirs * 1e6, "evenorm_us": ours * 1e6, "ratio": ratio}  # fmt: skip
                        if arguments.json:
                            print(json.dumps(row), flush=True)
                        else:
                            print(f"{kind:6}{dtype:6}{threads:8}{f'{rows}x{cols}':>14}{a_pass:>9}{theirs * 1e6:12.1f}"
                                  f"{ours * 1e6:12.1f}{ratio:8.2f}", flush=True)  # fmt: skip
    if not arguments.json:
        print(f"the lowest ratio is {worst:.2f}")
    return 1 if arguments.below is not None and worst < arguments.below else 0


if __name__ == "__main__":
    sys.exit(main())

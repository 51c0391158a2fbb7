"""Times compiled models with PyTorch's norms and with evenorm's.

Inductor fuses PyTorch's norm with its element-wise neighbours, but calls evenorm's norm as an opaque operator. Both models
take turns. A row shows medians and the median of the paired ratios (PyTorch's time over evenorm's: above 1, evenorm is
faster).

    .venv/bin/python bench/compiled_models.py --threads 1
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import allocator
import torch
from torch import nn

import evenorm.torch


class Chain(nn.Module):
    """A norm among element-wise neighbours, which Inductor fuses it with."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.norm(x * 1.5 + 0.5)) + x


class Block(nn.Module):
    """A pre-norm feed-forward block: the norms are between matrix products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def seconds(call, x: torch.Tensor, backward: bool, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        y = call(x)
        if backward:
            y.sum().backward()
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    allocator.restart_with_it()
    torch.set_num_threads(arguments.threads)
    print(f"{'model':8}{'rows x width':>14}{'pass':>9}{'torch us':>12}{'evenorm us':>12}{'ratio':>8}")
    for name, rows, width in (("chain", 64, 768), ("chain", 4096, 768), ("block", 64, 256), ("block", 512, 384)):
        model = (Chain if name == "chain" else Block)(width)
        converted = copy.deepcopy(model)
        evenorm.torch.convert(converted)
        for backward in (False, True):
            x = torch.randn(rows, width, requires_grad=backward)
            with torch.set_grad_enabled(backward):
                calls = [torch.compile(m, fullgraph=True) for m in (model, converted)]
                for call in calls:
                    seconds(call, x, backward, 3)  # compiles
                once = seconds(calls[0], x, backward, 3)
                count = max(1, int(0.01 / once))
                times = [[seconds(call, x, backward, count) for call in calls] for _ in range(arguments.rounds)]
            theirs, ours = (statistics.median(t) * 1e6 for t in zip(*times, strict=True))
            ratio = statistics.median(a / b for a, b in times)
            a_pass = "both" if backward else "forward"
            print(f"{name:8}{f'{rows} x {width}':>14}{a_pass:>9}{theirs:12.1f}{ours:12.1f}{ratio:8.2f}", flush=True)


if __name__ == "__main__":
    main()

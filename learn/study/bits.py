"""Runs of the section `bits`: trains a small GPT in bf16 with norms of several kinds, and measures norms' gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import evenorm.torch

from . import gpt
from ._sections import Run, Settings, grid, number, rounded, seeded

HALF, FULL = torch.bfloat16, torch.float32
# The norm, the type of its parameters, and the type of all other tensors. AdamW's moments have their parameter's type.
KINDS: dict[str, tuple[gpt.Maker, torch.dtype, torch.dtype]] = {
    "torch.nn, bf16": (nn.LayerNorm, HALF, HALF),
    "evenorm, bf16": (evenorm.torch.LayerNorm, HALF, HALF),
    "evenorm, bf16, zero-centred": (partial(evenorm.torch.LayerNorm, zero_centered=True), HALF, HALF),
    "evenorm, float32 parameters": (evenorm.torch.LayerNorm, FULL, HALF),
    "all in float32": (evenorm.torch.LayerNorm, FULL, FULL),
    "torch.nn, float32 parameters": (nn.LayerNorm, FULL, HALF),
}
PAIR = ("torch.nn, float32 parameters", "evenorm, float32 parameters")
FUNCTIONS = {"PyTorch": nn.functional.layer_norm, "evenorm": evenorm.torch.layer_norm}
RATES, DEPTH, HELD, CHECKS = (1e-3, 3e-3), 2, 256, 10
SHARES = (64, 16, 4, 1)  # gradients are measured over a 64th of the rows of a batch, a 16th, a quarter, all


def runs(smoke: bool) -> list[Run]:
    """Many steps of few rows with all kinds but the last; few steps of many rows with two kinds."""
    (few, long), (many, short), rates = ((2, 10), (8, 4), RATES[:1]) if smoke else ((32, 1000), (256, 200), RATES)
    found = grid(part=("few",), norm=tuple(KINDS)[:-1], rate=rates, windows=(few,), steps=(long,))
    found += grid(part=("many",), norm=PAIR, rate=rates, windows=(many,), steps=(short,))
    return seeded(found, smoke)


def norms(model: nn.Module) -> list[nn.LayerNorm]:
    return [module for module in model.modules() if isinstance(module, nn.LayerNorm)]


def weights(model: nn.Module) -> Tensor:
    """The weights of all norms. Gamma is 1 at first, so abs(gamma - 1) is the distance of a weight from its first value."""
    return torch.cat([one.weight.detach().double() for one in norms(model)])


def errors(norm: Callable[..., Tensor], x: Tensor, dy: Tensor) -> list[float]:
    """The relative errors of the gradients of gamma and beta against float64: for each, the median over the columns."""

    def gradients(norm: Callable[..., Tensor], x: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
        both = [make(x.shape[1], dtype=x.dtype, requires_grad=True) for make in (torch.ones, torch.zeros)]
        return torch.autograd.grad(norm(x, x.shape[1:], *both), both, dy)

    exact = gradients(nn.functional.layer_norm, x.double(), dy.double())
    return [float(((a - b) / b).abs().median()) for a, b in zip(gradients(norm, x, dy), exact, strict=True)]


def measured(model: nn.Module, windows: Tensor) -> dict[str, list[list[float | None]]]:
    """The errors in one step, by norm and share of the rows."""
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(_: nn.Module, x: tuple[Tensor], y: Tensor) -> None:
        y.register_hook(lambda dy: seen.append((x[0].detach().flatten(0, 1), dy.flatten(0, 1))))

    for module in norms(model):
        module.register_forward_hook(keep)
    gpt.loss_of(model, windows).backward()
    found = {}
    for name, norm in FUNCTIONS.items():
        parts = [[errors(norm, x[: len(x) // n], dy[: len(x) // n]) for n in SHARES] for x, dy in reversed(seen)]
        for at, parameter in enumerate(("gamma", "beta")):
            found[f"{name}, {parameter}"] = [rounded(part[at] for part in one) for one in parts]
    return found


def run(settings: Settings, seed: int) -> dict[str, Any]:
    """Trains with AdamW. A seed determines the first weights and the text, independently of the norm."""
    (make, own, other), steps, windows = KINDS[settings["norm"]], settings["steps"], settings["windows"]
    model = gpt.GPT(DEPTH, "pre", make).to(other)
    for norm in norms(model):
        norm.to(own)
    (text, held), chance = gpt.split(), torch.Generator().manual_seed(seed)
    tested = gpt.windows(held, HELD, chance)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["rate"], fused=True)
    found: dict[str, Any] = {"loss": [], "moved": []}
    first = weights(model)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        gpt.loss_of(model, gpt.windows(text, windows, chance)).backward()
        optimizer.step()
        if step % max(1, steps // CHECKS) == 0:
            found["loss"].append(gpt.held_out(model, tested))
            found["moved"].append(number(float((weights(model) - first).abs().mean()), 5))
    if settings["part"] == "many":
        found["errors"] = measured(model, gpt.windows(text, windows, chance))
    return found

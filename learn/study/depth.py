"""Runs of the section `depth`: trains a small GPT with each norm and place of the norm, depth and learning rate."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import evenorm.torch

from . import gpt
from ._sections import Run, Settings, grid, rounded, seeded


@dataclass(frozen=True)
class Kind:
    """The place and kind of the norm, whether branches begin at zero (see `gpt.GPT`), and whether the rate warms up."""

    place: str
    make: gpt.Maker = evenorm.torch.LayerNorm
    still: bool = False
    warm: bool = False


KINDS = {
    "none": Kind("none"),
    "still": Kind("none", still=True),
    "post": Kind("post"),
    "post, warm-up": Kind("post", warm=True),
    "pre": Kind("pre"),
    "rms": Kind("pre", evenorm.torch.RMSNorm),
}
DEPTHS, RATES = (2, 6, 12, 24), (1e-3, 3e-3, 1e-2, 3e-2)
STEPS, SIZE, CHECKS = 160, 8, 8  # steps, windows of a batch, checks for an early end
HELD, PROBED = 64, 64  # windows for the held-out loss, and for the gradients at initialisation
WARM = 0.5  # the share of the steps in which a warm-up raises the rate
# A run ends early if its loss is not finite, or if its loss exceeds HOPELESS times that of guessing at or after SHARE
# of its steps.
HOPELESS, SHARE = 10.0, 0.25


def runs(smoke: bool) -> list[Run]:
    depths, rates, steps = ((2, 3), (1e-2,), 10) if smoke else (DEPTHS, RATES, STEPS)
    start = grid(part=("start",), norm=("none", "post", "pre"), depth=depths)
    train = grid(part=("train",), norm=tuple(KINDS), depth=depths, rate=rates, steps=(steps,))
    return seeded([{"part": "text"}, *start, *train], smoke)


def run(settings: Settings, seed: int) -> dict[str, Any]:
    """Performs one run. A seed determines the first weights, the text and its order, independently of the norm."""
    if settings["part"] == "text":
        return gpt.about()
    kind = KINDS[settings["norm"]]
    model = gpt.GPT(settings["depth"], kind.place, kind.make, kind.still)
    trained, held = gpt.split()
    chance = torch.Generator().manual_seed(seed)
    tested = gpt.windows(held, HELD, chance)
    if settings["part"] == "start":
        probed = gpt.windows(trained, PROBED, chance)
        return {"gradient": gradients(model, probed), "stream": stream(model, tested)}
    steps = settings["steps"]
    warm = max(1, round(WARM * steps)) if kind.warm else 1
    return {"loss": train(model, trained, tested, chance, steps, settings["rate"], warm)}


def gradients(model: gpt.GPT, windows: Tensor) -> list[float | None]:
    """For each layer, the norm of the gradient of its last matrix, which is the second of the feed-forward network."""
    gpt.loss_of(model, windows).backward()
    return rounded(float(matrix.grad.double().norm()) for matrix in model.last_matrices() if matrix.grad is not None)


def stream(model: gpt.GPT, windows: Tensor) -> list[float | None]:
    """The root mean square of the embedding and of the residual stream after each layer."""
    with torch.no_grad():
        found = model.stream(windows[:, :-1])
    return rounded(float(one.double().square().mean().sqrt()) for one in found)


def train(
    model: gpt.GPT, text: Tensor, tested: Tensor, chance: torch.Generator, steps: int, rate: float, warm: int
) -> float | None:
    """Trains with Adam, without clipping; the rate grows in the first `warm` steps.

    Returns the last held-out loss; None if the run ended early.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    checked = {round(steps * check / CHECKS) for check in range(1, CHECKS + 1)}
    now = None
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, step / warm)
        loss = gpt.loss_of(model, gpt.windows(text, SIZE, chance))
        if not math.isfinite(loss.item()):
            return None
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in checked:
            now = gpt.held_out(model, tested)
            if now is None or (step >= SHARE * steps and now > HOPELESS * math.log(gpt.SYMBOLS)):
                return None
    return now

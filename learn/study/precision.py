"""Runs of the section `precision`: parameter gradients of bf16 norms over many rows, and training with them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import evenorm.torch

from . import batch
from ._sections import Run, Settings, grid, seeded
from ._setup import THREADS

SEEDS = (0, 1, 2, 3, 4)
NORMS: dict[str, Callable[[int], nn.Module]] = {"torch": nn.LayerNorm, "evenorm": evenorm.torch.LayerNorm}
OPTIMIZERS = ("sgd", "adam")
RATES = {("affine", "sgd"): 1.0, ("affine", "adam"): 0.02, ("digits", "sgd"): 0.1, ("digits", "adam"): 0.004}
COLS, WIDTH, TOKENS = 64, 32, 8


def runs(smoke: bool) -> list[Run]:
    rows = (64, 1024) if smoke else (64, 256, 512, 1024, 4096, 16384, 65536)
    gradients = grid(part=("gradient",), parameters=("bfloat16", "float32"), threads=(1, 2), rows=rows)
    affine = grid(
        part=("affine",), norm=tuple(NORMS), optimizer=OPTIMIZERS, rows=(1024,) if smoke else (256, 4096, 16384),
        steps=(10 if smoke else 60,),
    )  # fmt: skip
    digits = grid(
        part=("digits",), norm=tuple(NORMS), optimizer=OPTIMIZERS, samples=(64,) if smoke else (32, 1280),
        steps=(2 if smoke else 80,),
    )  # fmt: skip
    return seeded([*gradients, *affine, *digits], SEEDS[:2] if smoke else SEEDS)


def run(settings: Settings, seed: int) -> dict[str, Any]:
    if settings["part"] == "gradient":
        return gradients(settings["rows"], settings["threads"], getattr(torch, settings["parameters"]))
    if settings["part"] == "affine":
        return learn_affine(settings)
    return learn_digits(settings, seed)


def parameter_gradients(norm: nn.Module, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    norm.zero_grad()
    norm(x).backward(dy)
    weight, bias = norm.weight.grad, norm.bias.grad
    assert isinstance(weight, Tensor) and isinstance(bias, Tensor)
    return weight.double(), bias.double()


def apart(found: Tensor, exact: Tensor) -> float:
    """The RMS difference, relative to the RMS of what is right."""
    return float((found - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def gradients(rows: int, threads: int, parameters: torch.dtype) -> dict[str, Any]:
    """Both norms' dgamma and dbeta of the same bf16 rows: of ones, where both sums are known, and of normal numbers."""
    x = torch.randn(rows, COLS).bfloat16()
    signs = torch.ones(rows, COLS, dtype=torch.bfloat16)
    signs[:, 1::2] = -1  # normalised: these, times the square root of 1 / (1 + eps)
    ones = torch.ones(rows, COLS, dtype=torch.bfloat16)
    random = torch.randn(rows, COLS).bfloat16()
    mean = x.double().mean(1, keepdim=True)
    normal = (x.double() - mean) / ((x.double() - mean).square().mean(1, keepdim=True) + 1e-5).sqrt()
    scale = 1 / (1 + 1e-5) ** 0.5
    found: dict[str, Any] = {"rows": rows}
    torch.set_num_threads(threads)
    try:
        for name, make in NORMS.items():
            norm = make(COLS).to(parameters)
            dgamma, dbeta = parameter_gradients(norm, signs, signs)
            _, ones_dbeta = parameter_gradients(norm, signs, ones)
            random_dgamma, random_dbeta = parameter_gradients(norm, x, random)
            found[name] = {
                "dbeta of ones": float(ones_dbeta[0]),
                "dbeta of ones, right": float((ones_dbeta == rows).double().mean()),
                "dgamma of ones": float(dgamma[0]),
                "dgamma of ones, relative error": apart(dgamma, torch.full_like(dgamma, rows * scale)),
                "dgamma of normal numbers, relative error": apart(random_dgamma, (random.double() * normal).sum(0)),
                "dbeta of normal numbers, relative error": apart(random_dbeta, random.double().sum(0)),
                "dbeta of minus ones too": float(dbeta[1]),
            }
    finally:
        torch.set_num_threads(THREADS)
    return found


class Masters:
    """A bf16 model's parameters in float32, which the optimizer changes: a bf16 parameter would swallow small steps."""

    def __init__(self, model: nn.Module, optimizer: str, rate: float) -> None:
        self.low = list(model.parameters())
        self.high = [one.detach().float().requires_grad_() for one in self.low]
        model.bfloat16()
        self.low = list(model.parameters())
        if optimizer == "adam":
            self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.high, lr=rate)
        else:
            self.optimizer = torch.optim.SGD(self.high, lr=rate, momentum=0.9 if len(self.high) > 2 else 0)

    def step(self, loss: Tensor) -> None:
        for one in self.low:
            one.grad = None
        loss.backward()
        with torch.no_grad():
            for high, low in zip(self.high, self.low, strict=True):
                high.grad = None if low.grad is None else low.grad.float()
            self.optimizer.step()
            for high, low in zip(self.high, self.low, strict=True):
                low.copy_(high)


def learn_affine(settings: Settings) -> dict[str, Any]:
    """A norm alone learns another one's gamma and beta: the mean squared error over rows, in bf16 but for the loss.

    The worst case: an error that all rows share, so that their gradients have one sign.
    """
    x = torch.randn(settings["rows"], COLS).bfloat16()
    gamma, beta = 1 + 0.5 * torch.randn(COLS), torch.randn(COLS)
    norm = NORMS[settings["norm"]](COLS)
    target = nn.functional.layer_norm(x.float(), (COLS,), gamma, beta)
    masters = Masters(norm, settings["optimizer"], RATES["affine", settings["optimizer"]])
    losses = []
    for _ in range(settings["steps"]):
        loss = (norm(x).float() - target).square().mean(0).sum() / 2
        losses.append(float(loss.detach()) / COLS)
        masters.step(loss / (1 if settings["optimizer"] == "adam" else 4))
    final = (norm(x).float() - target).square().mean(0).sum() / 2
    return {
        "loss": losses,
        "final loss": float(final.detach()) / COLS,
        "gamma off by": float((masters.high[0].detach() - gamma).square().mean().sqrt()),
        "beta off by": float((masters.high[1].detach() - beta).square().mean().sqrt()),
    }


class Reader(nn.Module):
    """Reads a digit as 8 rows of 8 pixels: a norm sees 8 rows for each sample."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(8, WIDTH), nn.Parameter(0.1 * torch.randn(TOKENS, WIDTH))
        self.first, self.up, self.down = norm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.mix, self.last, self.digit = nn.Linear(TOKENS, TOKENS), norm(WIDTH), nn.Linear(TOKENS * WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) + self.place
        h = h + self.mix(self.first(h).transpose(1, 2)).transpose(1, 2)
        h = h + self.down(torch.relu(self.up(self.last(h))))
        result: Tensor = self.digit(h.flatten(1))
        return result


def learn_digits(settings: Settings, seed: int) -> dict[str, Any]:
    """A small network in bf16, all norms over 8 rows a sample; the batch is drawn anew for each step."""
    (x, digit), (held_x, held) = batch.split(seed)
    x, held_x = (one.view(-1, TOKENS, 8).bfloat16() for one in (x, held_x))
    model = Reader(NORMS[settings["norm"]])
    masters = Masters(model, settings["optimizer"], RATES["digits", settings["optimizer"]])
    losses = []
    for _ in range(settings["steps"]):
        chosen = torch.randperm(len(x))[: settings["samples"]]
        loss = nn.functional.cross_entropy(model(x[chosen]).float(), digit[chosen])
        losses.append(float(loss.detach()))
        masters.step(loss)
    with torch.no_grad():
        logits = model(held_x).float()
    return {
        "loss": losses,
        "final loss": sum(losses[-10:]) / len(losses[-10:]),
        "held-out loss": float(nn.functional.cross_entropy(logits, held)),
        "accuracy": batch.share(logits.argmax(1) == held),
    }

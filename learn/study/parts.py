"""Runs of the section `parts`: layer norm whole, and with parts of it left out, forwards and backwards."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import evenorm.torch

from . import batch
from ._sections import Run, Settings, grid, rounded, seeded

# What is not whole has no gamma and beta. What is detached counts as a constant in the backward pass.
VARIANTS = ("none", "whole", "simple", "mean detached", "variance detached", "both detached")
NETWORKS = ("mlp", "transformer")
SEEDS = (0, 1, 2, 3, 4)
RATES = {"mlp": (1e-3, 4e-3, 1.6e-2, 6.4e-2), "transformer": (1e-3, 4e-3, 1.6e-2)}
SAMPLES = (128, batch.TRAINED)
STEPS, SIZE, POINTS = 480, 64, 15
LAYERS, WIDTH = 4, 64  # of the MLP
BLOCKS, TOKENS, PIXELS, EMBEDDING, HEADS = 2, 8, 8, 32, 4  # of the Transformer
EPS = 1e-5


def runs(smoke: bool) -> list[Run]:
    if smoke:
        return seeded(grid(network=NETWORKS, samples=(64,), variant=VARIANTS, rate=(4e-3,), steps=(8,)), (0, 1))
    return [
        run
        for network in NETWORKS
        for run in seeded(
            grid(network=(network,), samples=SAMPLES, variant=VARIANTS, rate=RATES[network], steps=(STEPS,)), SEEDS
        )
    ]


class Detached(torch.autograd.Function):
    """evenorm's layer norm without gamma and beta, whose gradient takes the mean, the variance or both as constants."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: bool, variance: bool) -> Tensor:
        """True: is a constant."""
        y = evenorm.torch.layer_norm(x, x.shape[-1:], eps=EPS)
        ctx.save_for_backward(y, (x.var(-1, correction=0, keepdim=True) + EPS).rsqrt())
        ctx.mean, ctx.variance = mean, variance
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        y, scale = ctx.saved_tensors
        dx = dy
        if not ctx.mean:
            dx = dx - dy.mean(-1, keepdim=True)
        if not ctx.variance:
            dx = dx - y * (dy * y).mean(-1, keepdim=True)
        return dx * scale, None, None


class Detach(nn.Module):
    def __init__(self, mean: bool, variance: bool) -> None:
        super().__init__()
        self.mean, self.variance = mean, variance

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = Detached.apply(x, self.mean, self.variance)  # type: ignore[no-untyped-call]
        return result


MAKERS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda width: nn.Identity(),
    "whole": lambda width: evenorm.torch.LayerNorm(width, eps=EPS),
    "simple": lambda width: evenorm.torch.LayerNorm(width, eps=EPS, elementwise_affine=False),
    "mean detached": lambda width: Detach(True, False),
    "variance detached": lambda width: Detach(False, True),
    "both detached": lambda width: Detach(True, True),
}


def formula(x: Tensor, variant: str) -> Tensor:
    """The same by autograd: mean and variance by PyTorch, detached where they are constants."""
    mean, centred = x.mean(-1, keepdim=True), x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + EPS).sqrt()
    if variant in ("mean detached", "both detached"):
        mean = mean.detach()
    if variant in ("variance detached", "both detached"):
        deviation = deviation.detach()
    return (x - mean) / deviation


def gradient_apart(variant: str) -> float:
    """The largest difference of the variant's gradient from that of the formula, in float64."""
    x, dy = torch.randn(2, 16, WIDTH, dtype=torch.float64)
    x, other = x.requires_grad_(), x.detach().clone().requires_grad_()
    MAKERS[variant](WIDTH).double()(x).backward(dy)
    formula(other, variant).backward(dy)
    assert x.grad is not None and other.grad is not None
    return float((x.grad - other.grad).abs().max())


def perceptron(make: Callable[[int], nn.Module]) -> nn.Sequential:
    """64 pixels, hidden layers with the norm before the activation, 10 digits."""
    layers = list[nn.Module]()
    for inputs in (TOKENS * PIXELS, *[WIDTH] * (LAYERS - 1)):
        layers += [nn.Linear(inputs, WIDTH), make(WIDTH), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(WIDTH, 10))


class Block(nn.Module):
    """A post-norm Transformer layer: what is added is normalised after it is added."""

    def __init__(self, make: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(EMBEDDING, 3 * EMBEDDING), nn.Linear(EMBEDDING, EMBEDDING)
        self.up, self.down = nn.Linear(EMBEDDING, 2 * EMBEDDING), nn.Linear(2 * EMBEDDING, EMBEDDING)
        self.first, self.second = make(EMBEDDING), make(EMBEDDING)

    def attention(self, x: Tensor) -> Tensor:
        rows = len(x)
        shape = rows, TOKENS, 3, HEADS, EMBEDDING // HEADS
        query, key, value = self.inward(x).view(shape).permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(-1, -2) * (EMBEDDING // HEADS) ** -0.5).softmax(-1)
        result: Tensor = self.outward((weights @ value).transpose(1, 2).reshape(rows, TOKENS, EMBEDDING))
        return result

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x + self.attention(x))
        result: Tensor = self.second(x + self.down(torch.relu(self.up(x))))
        return result


class Transformer(nn.Module):
    """Reads a digit row by row; the mean of the last layer's tokens says which."""

    def __init__(self, make: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(PIXELS, EMBEDDING), nn.Parameter(0.1 * torch.randn(TOKENS, EMBEDDING))
        self.blocks = nn.Sequential(*(Block(make) for _ in range(BLOCKS)))
        self.digit = nn.Linear(EMBEDDING, 10)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.digit(self.blocks(self.embed(x) + self.place).mean(1))
        return result


def network(kind: str, variant: str) -> nn.Module:
    return perceptron(MAKERS[variant]) if kind == "mlp" else Transformer(MAKERS[variant])


def looked_at(model: nn.Module, x: Tensor, digit: Tensor) -> tuple[float, float]:
    """Loss and accuracy."""
    with torch.no_grad():
        logits = model(x)
    return nn.functional.cross_entropy(logits, digit).item(), batch.share(logits.argmax(1) == digit)


def weights(model: nn.Module) -> float:
    """The norm of all weights and biases that linear layers have."""
    linear = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
    return math.sqrt(sum(float(one.detach().square().sum()) for layer in linear for one in layer.parameters()))


def run(settings: Settings, seed: int) -> dict[str, Any]:
    (x, digit), (held_x, held) = batch.split(seed)
    x, digit = x[: settings["samples"]].view(-1, TOKENS, PIXELS), digit[: settings["samples"]]
    held_x, model = held_x.view(-1, TOKENS, PIXELS), network(settings["network"], settings["variant"])
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["rate"], fused=True)
    order, every = torch.Generator().manual_seed(seed), max(1, settings["steps"] // POINTS)
    curves: dict[str, list[float | None]] = {"loss": [], "held-out loss": [], "accuracy": []}
    start = weights(model)
    for step in range(1, settings["steps"] + 1):
        chosen = torch.randint(len(x), (SIZE,), generator=order)
        loss = nn.functional.cross_entropy(model(x[chosen]), digit[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            values = looked_at(model, x, digit)[0], *looked_at(model, held_x, held)
            for curve, value in zip(curves.values(), values, strict=True):
                curve += rounded([value])
            if not all(map(math.isfinite, values)):
                break  # diverged
    detached = settings["variant"] not in ("none", "whole")
    return {
        "steps of a point": every,
        **curves,
        "weights grow by": rounded([weights(model) / start])[0],
        **({"gradient apart": gradient_apart(settings["variant"])} if detached else {}),
    }

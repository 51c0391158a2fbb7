"""Runs of the section `shift`: the drift of the inputs of a deep network's layers while it learns digits."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from . import batch
from ._sections import Run, Settings, curve, grid, mean, rounded, seeded

NORMS = ("none", "batch", "layer")
RATES = (0.03, 0.1, 0.3, 1.0)
MEASURES = ("step", "start", "gradient")  # drift in a step, drift from the start, change of the gradient
LAYERS, SIZE, STEPS, HELD = 5, 64, 600, 256  # hidden layers, samples of a batch, steps, held-out samples
PROBES, CURVE = 20, 30
# At noise s, each step draws a mean shift from -s to s and a mean factor from 1 to 1 + FACTOR * s for each unit. Each
# sample's own shift and factor differ from these means by at most SPREAD * s.
NOISES = (0.0, 0.5)
FACTOR, SPREAD = 0.5, 0.2


def runs(smoke: bool) -> list[Run]:
    rates, steps = ((0.1,), 6) if smoke else (RATES, STEPS)
    return seeded(grid(norm=NORMS, noise=NOISES, rate=rates, steps=(steps,)), smoke)


class Noise(nn.Module):
    """Shifts and scales each activation at random. `redraw` draws another distribution for the next step."""

    def __init__(self, size: float, generator: torch.Generator) -> None:
        super().__init__()
        self.size, self.generator = size, generator
        self.redraw()

    def uniform(self, size: float, *shape: int) -> Tensor:
        return torch.empty(shape).uniform_(-size, size, generator=self.generator)

    def redraw(self) -> None:
        self.shift = self.uniform(self.size, batch.WIDTH)
        self.factor = 1 + self.uniform(FACTOR * self.size, batch.WIDTH).abs()
        self.drawn: dict[int, tuple[Tensor, Tensor]] = {}  # by number of rows; kept until the next step

    def forward(self, x: Tensor) -> Tensor:
        rows, own = len(x), SPREAD * self.size
        if rows not in self.drawn:
            shifts, factors = self.uniform(own, rows, batch.WIDTH), self.uniform(own, rows, batch.WIDTH)
            self.drawn[rows] = self.shift + shifts, self.factor + factors
        shift, factor = self.drawn[rows]
        return x * factor + shift


class Network(nn.Module):
    """64 pixels; hidden layers of product, norm, noise and ReLU; 10 digits.

    He's initialisation lets the network train without a norm.
    """

    def __init__(self, norm: str, noise: float, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [64, *[batch.WIDTH] * LAYERS]
        self.products = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        for product in self.products:
            nn.init.kaiming_normal_(product.weight, nonlinearity="relu")  # type: ignore[arg-type]
            nn.init.zeros_(product.bias)  # type: ignore[arg-type]
        self.products.append(nn.Linear(batch.WIDTH, 10))
        self.norms = nn.ModuleList(batch.MAKERS[norm]() for _ in range(LAYERS))
        self.noises = nn.ModuleList(Noise(noise, generator) if noise else nn.Identity() for _ in range(LAYERS))

    def inputs(self, x: Tensor) -> Iterator[Tensor]:
        """Yields the input of each activation, then the logits."""
        for product, norm, noise in zip(self.products, self.norms, self.noises, strict=False):
            inside = noise(norm(product(x)))
            yield inside
            x = torch.relu(inside)
        yield self.products[-1](x)

    def forward(self, x: Tensor) -> Tensor:
        return list(self.inputs(x))[-1]

    def redraw(self, layer: int) -> None:
        noise = self.noises[layer]
        if isinstance(noise, Noise):
            noise.redraw()

    def of_layer(self, layer: int) -> list[nn.Parameter]:
        """All parameters of a hidden layer or, for the index LAYERS, of the output layer."""
        norm = self.norms[layer].parameters() if layer < LAYERS else []
        return [*self.products[layer].parameters(), *norm]

    def kept(self) -> list[list[Tensor]]:
        return [[one.detach().clone() for one in self.of_layer(layer)] for layer in range(LAYERS + 1)]

    def restore(self, layer: int, kept: list[list[Tensor]]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self.of_layer(layer), kept[layer], strict=True):
                parameter.copy_(value)


def distributions(model: Network, x: Tensor) -> list[Tensor]:
    """The inputs of each activation over the samples, with each unit's values sorted."""
    with torch.no_grad():
        return [inside.sort(dim=0).values for inside in model.inputs(x)][:-1]


def drift(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[float]:
    """The distance between the distributions of each layer's units, relative to their standard deviation before.

    The distance is the Wasserstein distance of order 2: in one dimension, the RMS difference of the sorted values.
    Distance and standard deviation are averaged over units as RMS.
    """
    return [
        float(((b - a).square().mean() / a.var(dim=0, correction=0).mean()).sqrt())
        for a, b in zip(before, after, strict=True)
    ]


def gradients_moved(
    model: Network, data: tuple[Tensor, Tensor], before: list[list[Tensor]], gradients: list[Tensor]
) -> list[float]:
    """For each layer except the first, how much its weights' gradient changes when the layers below take their step.

    The change is relative to the gradient. The model has taken the step; `before` and `gradients` hold its parameters
    and gradients from before the step. The noise below a layer is redrawn, because a layer sees this change, too.
    """
    after, moved = model.kept(), []
    for layer in range(LAYERS + 1):
        model.restore(layer, before)
    for layer in range(1, LAYERS + 1):
        model.restore(layer - 1, after)
        model.redraw(layer - 1)
        weight, old = model.products[layer].weight, gradients[layer - 1]
        assert isinstance(weight, Tensor)
        (new,) = torch.autograd.grad(nn.functional.cross_entropy(model(data[0]), data[1]), weight)
        moved.append(float((new - old).norm() / old.norm()))
    model.restore(LAYERS, after)
    return moved


def probed(steps: int) -> list[int]:
    """The measured steps: dense at the beginning, and including the last step."""
    return sorted({round(steps ** (n / (PROBES - 1))) for n in range(PROBES)})


class Probes:
    """The means over layers of each measure, at the measured steps."""

    def __init__(self, model: Network, held: Tensor, steps: int) -> None:
        self.model, self.held, self.steps = model, held, set(probed(steps))
        self.start = distributions(model, held)
        self.found: dict[str, list[float]] = {name: [] for name in MEASURES}

    def around(self, step: int, data: tuple[Tensor, Tensor], update: Callable[[], Any]) -> None:
        """Makes the update, measures its effect if the step is one to measure, and draws the next step's noise."""
        model = self.model
        if step not in self.steps:
            update()
            for layer in range(LAYERS):
                model.redraw(layer)
            return
        old, kept = distributions(model, self.held), model.kept()
        gradients = [product.weight.grad.clone() for product in model.products[1:]]  # type: ignore[union-attr,operator]
        update()
        moved = gradients_moved(model, data, kept, gradients)
        new = distributions(model, self.held)
        for name, values in (("step", drift(old, new)), ("start", drift(self.start, new)), ("gradient", moved)):
            self.found[name].append(mean(values))


def run(settings: Settings, seed: int) -> dict[str, Any]:
    (x, digit), (held_x, _) = batch.split(seed)
    order, chance = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(1000 + seed)
    model = Network(settings["norm"], settings["noise"], chance)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["rate"])
    probes, losses = Probes(model, held_x[:HELD], settings["steps"]), list[float]()
    for step in range(1, settings["steps"] + 1):
        chosen = torch.randint(len(x), (SIZE,), generator=order)
        data = x[chosen], digit[chosen]
        loss = nn.functional.cross_entropy(model(data[0]), data[1])
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break  # diverged
        optimizer.zero_grad()
        loss.backward()
        probes.around(step, data, optimizer.step)
    return {
        "loss": curve(losses, max(1, settings["steps"] // CURVE)),
        "mean loss": rounded([mean(losses)])[0],
        "finite": math.isfinite(losses[-1]),
        **{f"{name} by step": rounded(values) for name, values in probes.found.items()},
    }

"""Runs of the section `batch`: a small network on scikit-learn's digits, with one norm and one batch size each."""

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import evenorm.torch

from ._sections import Run, Settings, grid, seeded

NORMS = ("none", "batch", "layer", "layer after", "group")
SIZES = (1, 2, 4, 8, 64, 256)
SEEDS = (0, 1, 2, 3, 4)
TRAINED, WIDTH, GROUPS = 1280, 128, 8  # 1280: every batch is whole at every size
RATE, RATE_SIZE = 4e-3, 64
MATES = (7, 63)  # beside the sample that is looked at


def runs(smoke: bool) -> list[Run]:
    if smoke:
        return seeded(grid(norm=NORMS, size=(1, 32), epochs=(2,), samples=(128,)), (0, 1))
    return seeded(grid(norm=NORMS, size=SIZES, epochs=(3,), samples=(TRAINED,)), SEEDS)


class RawBatchNorm(nn.BatchNorm1d):
    """torch.nn's without its check of the batch size: what the formula gives at batch size 1."""

    def forward(self, x: Tensor) -> Tensor:
        mean, var, momentum = self.running_mean, self.running_var, self.momentum or 0.0
        result: Tensor = torch.batch_norm(
            x, self.weight, self.bias, mean, var, self.training, momentum, self.eps, torch.backends.cudnn.enabled
        )
        return result


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "none": nn.Identity,
    "batch": lambda: RawBatchNorm(WIDTH),
    "layer": lambda: evenorm.torch.LayerNorm(WIDTH),
    "layer after": lambda: evenorm.torch.LayerNorm(WIDTH),
    "group": lambda: nn.GroupNorm(GROUPS, WIDTH),
}


def network(norm: str) -> nn.Sequential:
    """64 pixels, two hidden layers, 10 digits; the norm stands before the activation, or after it: LN(f(Wx))."""
    make, layers = MAKERS[norm], list[nn.Module]()
    for inputs in (64, WIDTH):
        inner = [nn.ReLU(), make()] if norm == "layer after" else [make(), nn.ReLU()]
        layers += [nn.Linear(inputs, WIDTH), *inner]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


@lru_cache
def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.from_numpy(found.data).float() / 16 - 0.3, torch.from_numpy(found.target).long()


def split(seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """What is trained on and what is held out, another split for each seed."""
    x, digit = digits()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    first, rest = order[:TRAINED], order[TRAINED:]
    return (x[first], digit[first]), (x[rest], digit[rest])


def train(
    model: nn.Module, data: tuple[Tensor, Tensor], size: int, epochs: int, after: Callable[[float], None]
) -> None:
    """Adam; the rate goes with the root of the batch size, alike for all norms. `after` each epoch: its mean loss."""
    x, digit = data
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE * (size / RATE_SIZE) ** 0.5, fused=True)
    for _ in range(epochs):
        model.train()
        total = torch.zeros(())
        for chosen in torch.randperm(len(x)).split(size):
            loss = nn.functional.cross_entropy(model(x[chosen]), digit[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        after(float(total) * size / len(x))


def logits(model: nn.Module, x: Tensor, size: int, training: bool) -> Tensor:
    """What the model gives in batches of a size, in either mode; its running statistics stay as they are."""
    model = copy.deepcopy(model).train(training)
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(size)])


def share(right: Tensor) -> float:
    return float(right.double().mean())


def bits_apart(a: Tensor, b: Tensor) -> int:
    """How many bits of two float32 tensors differ."""
    apart = (a.contiguous().view(torch.int32) ^ b.contiguous().view(torch.int32)).long() & 0xFFFFFFFF
    return sum(int((apart >> bit & 1).sum()) for bit in range(32))


def apart(function: Callable[[Tensor], Tensor], sample: Tensor, mates: list[Tensor]) -> int:
    """The most bits by which the sample's result differs between two companies of batch mates."""
    with torch.no_grad():
        found = [function(torch.cat([sample, others]))[0] for others in mates]
    return max(bits_apart(found[0], one) for one in found[1:])


def dependence(model: nn.Sequential, norm: str, x: Tensor) -> dict[str, int]:
    """Bits of one sample's output that its batch mates change, in training mode: of the network, and of a norm alone.

    The norm alone is given the same numbers for the sample each time. The network's matrix products are PyTorch's,
    which may sum in another order when the batch has another size: so equal and different sizes are told apart.
    """
    sample, (few, many) = x[:1], MATES
    alike = [x[1 + few * n : 1 + few * (n + 1)] for n in range(4)]
    others = [alike[0], x[1 : 1 + many], x[:0]]
    model = copy.deepcopy(model).train()
    inside = model[2 if norm == "layer after" else 1]
    with torch.no_grad():
        before = model[1](model[0](x)) if norm == "layer after" else model[0](x)
    hidden = before[:1]
    hidden_alike = [before[1 + few * n : 1 + few * (n + 1)] for n in range(4)]
    hidden_others = [hidden_alike[0], before[1 : 1 + many], before[:0]]
    return {
        "norm, as many mates": apart(inside, hidden, hidden_alike),
        "norm, other numbers of mates": apart(inside, hidden, hidden_others),
        "network, as many mates": apart(model, sample, alike),
        "network, other numbers of mates": apart(model, sample, others),
        "product, other numbers of mates": apart(model[0], sample, others),
        "bits of a norm's row": 32 * WIDTH,
        "bits of the network's row": 32 * 10,
    }


def refusal() -> str:
    """What torch.nn.BatchNorm1d says to one sample in training."""
    try:
        nn.BatchNorm1d(WIDTH)(torch.zeros(1, WIDTH))
    except ValueError as error:
        return str(error)
    return ""


def run(settings: Settings, seed: int) -> dict[str, Any]:
    norm, size = settings["norm"], settings["size"]
    (train_x, train_digit), (x, digit) = split(seed)
    data = train_x[: settings["samples"]], train_digit[: settings["samples"]]
    model = network(norm)
    losses: list[float | None] = []
    accuracies: list[float] = []

    def after(loss: float) -> None:
        losses.append(loss if loss == loss else None)
        accuracies.append(share(logits(model, x, 256, False).argmax(1) == digit))

    train(model, data, size, settings["epochs"], after)
    trained, inferred = logits(model, x, size, True), logits(model, x, size, False)
    finite = bool(inferred.isfinite().all())
    error = nn.functional.cross_entropy(inferred, digit).item() if finite else None
    return {
        "loss": losses,
        "accuracy": accuracies,
        "accuracy, inference": share(inferred.argmax(1) == digit),
        "accuracy, training mode": share(trained.argmax(1) == digit),
        "loss, inference": error,
        "inference is finite": finite,
        "modes apart, bits": bits_apart(trained, inferred),
        "modes apart, rms": float((trained - inferred).square().mean().sqrt()) if finite else None,
        "outputs of all samples apart by": float((trained.amax(0) - trained.amin(0)).max()),
        "dependence": dependence(model, norm, x),
        **({"torch.nn.BatchNorm1d says": refusal()} if norm == "batch" and size == 1 else {}),
    }

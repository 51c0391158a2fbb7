"""Runs of the section `batch`: trains a small network on scikit-learn's digits with each norm and batch size."""

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import evenorm.torch

from ._sections import Run, Settings, grid, seeded

NORMS = ("none", "batch", "layer", "layer after")
SIZES = (1, 2, 4, 8, 64, 256)
TRAINED, WIDTH = 1280, 128  # 1280 samples divide into whole batches at every size
RATE, RATE_SIZE = 4e-3, 64
MATES = (7, 63)  # the numbers of other samples in the batch of the sample whose bits are compared


def runs(smoke: bool) -> list[Run]:
    sizes, epochs, samples = ((1, 32), 2, 128) if smoke else (SIZES, 3, TRAINED)
    return seeded(grid(norm=NORMS, size=sizes, epochs=(epochs,), samples=(samples,)), smoke)


class RawBatchNorm(nn.BatchNorm1d):
    """torch.nn.BatchNorm1d without its check of the batch size, to show what the formula gives at batch size 1."""

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
}


def network(norm: str) -> nn.Sequential:
    """64 pixels, two hidden layers, 10 digits. The norm comes before the activation or, for "layer after", after it."""
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
    """The training samples and the held-out samples; each seed has its own split."""
    x, digit = digits()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    first, rest = order[:TRAINED], order[TRAINED:]
    return (x[first], digit[first]), (x[rest], digit[rest])


def train(model: nn.Module, data: tuple[Tensor, Tensor], size: int, epochs: int, after: Callable[[], None]) -> None:
    """Trains with Adam and calls `after` after each epoch. The rate is proportional to the root of the batch size."""
    x, digit = data
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE * (size / RATE_SIZE) ** 0.5, fused=True)
    for _ in range(epochs):
        model.train()
        for chosen in torch.randperm(len(x)).split(size):
            loss = nn.functional.cross_entropy(model(x[chosen]), digit[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        after()


def logits(model: nn.Module, x: Tensor, size: int, training: bool) -> Tensor:
    """The model's logits in batches of a size, in either mode. The model's running statistics do not change."""
    model = copy.deepcopy(model).train(training)
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(size)])


def share(right: Tensor) -> float:
    return float(right.double().mean())


def bits_apart(a: Tensor, b: Tensor) -> int:
    """The number of bits in which two float32 tensors differ."""
    apart = (a.contiguous().view(torch.int32) ^ b.contiguous().view(torch.int32)).long() & 0xFFFFFFFF
    return sum(int((apart >> bit & 1).sum()) for bit in range(32))


def apart(function: Callable[[Tensor], Tensor], sample: Tensor, mates: list[Tensor]) -> int:
    """The largest number of bits by which the sample's result differs between its first batch and another."""
    with torch.no_grad():
        found = [function(torch.cat([sample, others]))[0] for others in mates]
    return max(bits_apart(found[0], one) for one in found[1:])


def dependence(model: nn.Sequential, norm: str, x: Tensor) -> dict[str, int]:
    """Bits of one sample's output that its batch mates change in training mode, for a norm alone and for the network.

    The norm alone always gets the same numbers for the sample. In the network, PyTorch's matrix products may sum in
    another order at another batch size. So batches of one size and batches of different sizes are compared separately.
    """
    few, many = MATES
    model = copy.deepcopy(model).train()
    inside = model[2 if norm == "layer after" else 1]
    with torch.no_grad():
        before = model[1](model[0](x)) if norm == "layer after" else model[0](x)
    found = {}
    for name, function, inputs in (("norm", inside, before), ("network", model, x)):
        alike = [inputs[1 + few * n : 1 + few * (n + 1)] for n in range(4)]
        others = [alike[0], inputs[1 : 1 + many], inputs[:0]]
        found[f"{name}, as many mates"] = apart(function, inputs[:1], alike)
        found[f"{name}, other numbers of mates"] = apart(function, inputs[:1], others)
    return found


def run(settings: Settings, seed: int) -> dict[str, Any]:
    norm, size = settings["norm"], settings["size"]
    (train_x, train_digit), (x, digit) = split(seed)
    data = train_x[: settings["samples"]], train_digit[: settings["samples"]]
    model = network(norm)
    accuracies: list[float] = []
    train(
        model,
        data,
        size,
        settings["epochs"],
        lambda: accuracies.append(share(logits(model, x, 256, False).argmax(1) == digit)),
    )
    trained, inferred = logits(model, x, size, True), logits(model, x, size, False)
    return {
        "accuracy": accuracies,
        "accuracy, inference": share(inferred.argmax(1) == digit),
        "accuracy, training mode": share(trained.argmax(1) == digit),
        "inference is finite": bool(inferred.isfinite().all()),
        "modes apart, bits": bits_apart(trained, inferred),
        "outputs of all samples apart by": float((trained.amax(0) - trained.amin(0)).max()),
        "dependence": dependence(model, norm, x),
    }

"""Runs of the section `recurrent`: an LSTM and a GRU, from torch.nn and with normalised gates.

train      learns scikit-learn's digits row by row, or generated sequences of different lengths
dynamics   outputs and gradients over time steps at initialisation, with all weights re-scaled
company    bits of a sequence's result that change with the rest of its batch
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import evenorm.torch

from . import batch
from ._sections import Run, Settings, curve, grid, mean, number, rounded, seeded

CELLS = ("lstm", "gru")
NORMS = ("none", "layer")
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SCALES = (0.25, 1.0, 4.0, 16.0)
WIDTH, SYMBOLS, DIGITS = 32, 6, 10
SIZE = {"rows": 64, "marked": 32, "most": 32}  # sequences of a batch, by task
PIXELS = 8  # in a row of a digit
LENGTHS, LONGER, HELD = (5, 20), (40, 60), 512
CURVE = 20  # points of a curve
STEPS_SHOWN = (1, 2, 3, 5, 8, 13, 20, 30, 40, 50, 60)  # the time steps whose gradients are recorded
KINDS: dict[tuple[str, str], Callable[..., nn.Module]] = {
    ("lstm", "none"): nn.LSTM,
    ("lstm", "layer"): evenorm.torch.LayerNormLSTM,
    ("gru", "none"): nn.GRU,
    ("gru", "layer"): evenorm.torch.LayerNormGRU,
}
State = tuple[Tensor, ...]


def runs(smoke: bool) -> list[Run]:
    tasks, rates = (("rows", "most"), RATES[2:3]) if smoke else (("rows", "marked", "most"), RATES)
    steps = (10,) if smoke else (200,)
    found = grid(part=("train",), task=tasks, cell=CELLS, norm=NORMS, rate=rates, steps=steps)
    found += grid(part=("dynamics",), cell=CELLS, norm=NORMS, scale=SCALES)
    found += grid(part=("company",), cell=CELLS, norm=("layer",), steps=(5 if smoke else 100,))
    return seeded(found, smoke)


def run(settings: Settings, seed: int) -> dict[str, Any]:
    if settings["part"] == "train":
        return learn(settings, seed)
    if settings["part"] == "dynamics":
        return dynamics(settings)
    return company(settings, seed)


def recurrent(cell: str, norm: str, columns: int) -> nn.Module:
    """One layer. For one seed, its first weights are the same with and without the norm."""
    return KINDS[cell, norm](columns, WIDTH, batch_first=True)


def rescale(layer: nn.Module, factor: float) -> None:
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("weight"):
                parameter.mul_(factor)


def parts(state: Any) -> State:
    """The state as a tuple: (h, c) of an LSTM, (h,) of a GRU."""
    return tuple(state) if isinstance(state, tuple) else (state,)


class Reader(nn.Module):
    """A recurrent layer and a linear layer, which computes the answer from the last state."""

    def __init__(self, cell: str, norm: str, columns: int, answers: int) -> None:
        super().__init__()
        self.layer, self.answer = recurrent(cell, norm, columns), nn.Linear(WIDTH, answers)

    def last(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """h after each sequence's own last step. `lengths`, if given, are in falling order."""
        _, state = self.layer(x if lengths is None else pack_padded_sequence(x, lengths, batch_first=True))
        return parts(state)[0][-1]

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        result: Tensor = self.answer(self.last(x, lengths))
        return result


def sequences(task: str, many: int, lengths: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Padded sequences of symbols, their lengths in falling order, and the answers.

    A step has a column for each symbol and one for the mark. The answer of "marked" is the symbol that has the mark.
    The answer of "most" is the most frequent symbol, or the first of several equally frequent symbols.
    """
    length = torch.randint(lengths[0], lengths[1] + 1, (many,), generator=generator).sort(descending=True).values
    longest = int(length[0])
    symbol = torch.randint(SYMBOLS, (many, longest), generator=generator)
    x = torch.zeros(many, longest, SYMBOLS + 1)
    x[..., :SYMBOLS] = nn.functional.one_hot(symbol, SYMBOLS)
    x[torch.arange(longest) >= length[:, None]] = 0
    every = torch.arange(many)
    if task == "marked":
        place = (torch.rand(many, generator=generator) * length).long()
        x[every, place, SYMBOLS] = 1
        return x, length, symbol[every, place]
    counts = x[..., :SYMBOLS].sum(1).long()
    return x, length, (counts * SYMBOLS - torch.arange(SYMBOLS)).argmax(1)


Data = Callable[[], tuple[Tensor, Tensor | None, Tensor]]


def batches(task: str, seed: int) -> tuple[Data, dict[str, tuple[Tensor, Tensor | None, Tensor]]]:
    """A function that draws the next batch, and the held-out batches by name."""
    generator = torch.Generator().manual_seed(seed)
    if task == "rows":
        (x, digit), (held_x, held) = batch.split(seed)
        x, held_x = (one.view(len(one), -1, PIXELS) for one in (x, held_x))

        def drawn() -> tuple[Tensor, Tensor | None, Tensor]:
            chosen = torch.randint(len(x), (SIZE[task],), generator=generator)
            return x[chosen], None, digit[chosen]

        return drawn, {"accuracy": (held_x, None, held)}

    def made() -> tuple[Tensor, Tensor | None, Tensor]:
        found, length, answer = sequences(task, SIZE[task], LENGTHS, generator)
        return found, length, answer

    others = torch.Generator().manual_seed(seed + 1000)
    held_out: dict[str, tuple[Tensor, Tensor | None, Tensor]] = {}
    for name, lengths in (("accuracy", LENGTHS), ("longer", LONGER)):
        found, length, answer = sequences(task, HELD, lengths, others)
        held_out[name] = found, length, answer
    return made, held_out


def train(model: Reader, data: Data, rate: float, steps: int) -> list[float]:
    """Trains with Adam, without clipping. Returns the losses; the last one is not finite if training diverged."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    losses: list[float] = []
    for _ in range(steps):
        x, length, answer = data()
        loss = nn.functional.cross_entropy(model(x, length), answer)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def learn(settings: Settings, seed: int) -> dict[str, Any]:
    task, steps = settings["task"], settings["steps"]
    answers, columns = (DIGITS, PIXELS) if task == "rows" else (SYMBOLS, SYMBOLS + 1)
    model = Reader(settings["cell"], settings["norm"], columns, answers)
    data, held = batches(task, seed)
    losses = train(model, data, settings["rate"], steps)
    width = max(1, steps // CURVE)
    found: dict[str, Any] = {
        "loss": curve(losses, width),
        "mean loss": number(mean(losses)),
        "last loss": number(mean(losses[-max(1, steps // 10) :])),
    }
    with torch.no_grad():
        for name, (x, length, answer) in held.items():
            found[name] = round(batch.share(model(x, length).argmax(1) == answer), 6)
    return found


def apart_from(seed: int) -> torch.Generator:
    """The generator for sequences that are neither trained on nor held out."""
    return torch.Generator().manual_seed(seed + 2000)


def walk(layer: nn.Module, x: Tensor) -> list[State]:
    """The states after each step."""
    states, state = list[State](), None
    for step in range(x.shape[1]):
        _, state = layer(x[:, step : step + 1], state)
        states.append(parts(state))
    return states


def dynamics(settings: Settings) -> dict[str, Any]:
    """Reads normal numbers in float64 with an untrained layer, before and after re-scaling its weights.

    "gradient" is the RMS of the gradient of a random projection of the last h by the state after each step. "moved" is
    the distance by which the re-scaling moves the last h, relative to the size of h.
    """
    layer = recurrent(settings["cell"], settings["norm"], 8).double()
    x, direction = torch.randn(32, STEPS_SHOWN[-1], 8).double(), torch.randn(32, WIDTH).double()
    with torch.no_grad():
        before = walk(layer, x)[-1][0]
    rescale(layer, settings["scale"])
    states = walk(layer, x)
    wanted = [states[step - 1] for step in STEPS_SHOWN]
    last = (states[-1][0][-1] * direction).sum()
    flat = torch.autograd.grad(last, [one for state in wanted for one in state], allow_unused=True)
    each = len(wanted[0])
    sizes = [
        sum(float(one.square().mean()) for one in flat[at : at + each] if one is not None) ** 0.5
        for at in range(0, len(flat), each)
    ]
    moved = (states[-1][0].detach() - before).square().mean().sqrt() / before.square().mean().sqrt()
    return {
        "gradient": rounded(sizes),
        "moved": number(float(moved)),
    }


def most_apart(found: Iterable[Tensor]) -> int:
    first, *others = found
    return max(batch.bits_apart(first, one) for one in others)


class Company:
    """One sequence and the batches that it can be part of."""

    LENGTH, STEPS = 12, 24  # of the sequence; of the random numbers drawn for a sequence

    def __init__(self, layer: nn.Module, generator: torch.Generator) -> None:
        self.layer, self.generator = layer, generator
        self.sample = self.draw(1)[:, : self.LENGTH]

    def draw(self, many: int) -> Tensor:
        return torch.randn(many, self.STEPS, SYMBOLS + 1, generator=self.generator)

    def packed(self, others: Tensor, lengths: list[int]) -> Tensor:
        """The sequence's last h in a packed batch with other sequences of the given lengths."""
        longest = max([self.LENGTH, *lengths])
        x = torch.cat([nn.functional.pad(self.sample, (0, 0, 0, longest - self.LENGTH)), others[:, :longest]])
        whole = torch.tensor([self.LENGTH, *lengths])
        _, state = self.layer(pack_padded_sequence(x, whole, batch_first=True, enforce_sorted=False))
        return parts(state)[0][-1, :1]

    def padded(self, others: Tensor, padding: Tensor) -> Tensor:
        """The sequence's h after its own last step, in a batch padded to the longest sequence."""
        output: Tensor = self.layer(torch.cat([torch.cat([self.sample, padding], 1), others]))[0]
        return output[:1, self.LENGTH - 1]


def company(settings: Settings, seed: int) -> dict[str, int]:
    """Bits of one sequence's last state that change with its batch, after a little training."""
    model = Reader(settings["cell"], settings["norm"], SYMBOLS + 1, SYMBOLS)
    train(model, batches("most", seed)[0], 0.01, settings["steps"])
    one, same, rows = Company(model.layer, apart_from(seed)), [5, 9, 12, 12, 3, 7, 12], (1, 2, 8, 64)
    with torch.no_grad():
        mates, others = one.draw(7), [one.draw(7) for _ in range(3)]
        zeros = torch.zeros_like(one.sample)
        state, weight = torch.randn(rows[-1], WIDTH, generator=one.generator), model.layer.weight_hh_l0
        assert isinstance(weight, Tensor)
        summed = nn.functional.linear(state, weight)
        norm = evenorm.torch.LayerNorm(summed.shape[1])
        lengths = (same, [12] * 7, [24] * 7, [20, 1, 2, 3, 14, 5, 16])
        paddings = (zeros, one.draw(1)[:, : one.LENGTH], zeros + 1e4)
        return {
            "packed, other sequences of the same lengths": most_apart(one.packed(x, same) for x in (mates, *others)),
            "packed, sequences of other lengths": most_apart(one.packed(mates, length) for length in lengths),
            "packed, other numbers of sequences": most_apart(
                one.packed(one.draw(many), [12] * many) for many in (0, 1, 7, 63)
            ),
            "padded, other padding": most_apart(one.padded(mates, padding) for padding in paddings),
            "padded, other sequences": most_apart(one.padded(x, zeros) for x in (mates, *others)),
            "product, other numbers of rows": most_apart(
                nn.functional.linear(state[:many], weight)[:1] for many in rows
            ),
            "norm, other numbers of rows": most_apart(norm(summed[:many])[:1] for many in rows),
        }

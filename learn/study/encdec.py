"""Runs of the section `encdec`: an encoder-decoder Transformer learns to reverse and to sort strings of digits.

A string begins with a letter that states its task. The answer to "r 4 7 2" is "2 7 4"; to "s 4 7 2" it is "2 4 7".
"""

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import evenorm.torch

from . import batch
from ._sections import Run, Settings, curve, grid, mean, number, reached, seeded

NORMS = ("post", "pre")
WARMUPS = (0.0, 0.15)  # shares of the steps
RATES = (0.001, 0.003, 0.01, 0.03)
DEPTHS = (2, 6)  # layers of the encoder, and of the decoder
WIDTH, HEADS, INNER = 32, 4, 64
SIZE, HELD, LONGEST, ONE_IN = 64, 512, 6, 10  # one string in ONE_IN is held out
CURVE = 20  # points of a curve
PAD, DIGIT, LETTER, BEGIN, END, WORDS = 0, 1, 11, 13, 14, 15  # DIGIT and LETTER are the first tokens of their kind
BETAS, EPS = (0.9, 0.98), 1e-9  # Adam's, as in Vaswani et al. (2017)
TARGET = 0.5  # the loss whose step is reported


def runs(smoke: bool) -> list[Run]:
    """All settings in few steps, then a few settings in more steps, which show the losses at the end of training."""
    depths, rates, few, more = ((1,), RATES[1:3], 12, 16) if smoke else (DEPTHS, RATES, 250, 800)
    found = grid(depth=depths, rate=rates, warmup=WARMUPS, norm=NORMS, steps=(few,))
    found += grid(depth=depths[:1], rate=RATES[1:3], warmup=WARMUPS[1:], norm=NORMS, steps=(more,))
    return seeded(found, smoke)


class Batch(NamedTuple):
    source: Tensor  # strings, padded
    target: Tensor  # their answers, each with END, padded

    def inputs(self) -> Tensor:
        """The decoder's input: BEGIN, then the answer without its last token."""
        return torch.cat([torch.full((len(self.target), 1), BEGIN), self.target[:, :-1]], 1)


def held_out(source: Tensor) -> Tensor:
    """True for strings that are never trained on. A hash decides, so they are the same for all seeds."""
    value = torch.zeros(len(source), dtype=torch.long)
    for column in source.T:
        value = (value * 31 + column + 7) % 1_000_003
    return value * 7919 % 1_000_003 % ONE_IN == 0


def drawn(many: int, generator: torch.Generator) -> Batch:
    """Draws strings and their answers. Tasks, lengths and digits are uniformly distributed."""

    def whole(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    task, length, digits = whole(0, 2, many, 1), whole(1, LONGEST + 1, many, 1), whole(0, 10, many, LONGEST)
    places = torch.arange(LONGEST)
    inside = places < length
    reverse = digits.gather(1, torch.where(inside, length - 1 - places, places))
    ordered = torch.where(inside, digits, 10).sort(1).values
    source = torch.cat([LETTER + task, torch.where(inside, DIGIT + digits, PAD)], 1)
    answer = torch.where(inside, DIGIT + torch.where(task == 0, reverse, ordered), PAD)
    target = torch.cat([answer, torch.full((many, 1), PAD)], 1)
    return Batch(source, target.scatter(1, length, END))


def made(many: int, held: bool, generator: torch.Generator) -> Batch:
    """A batch of held-out strings, or of strings to train on."""
    found = drawn(many * (2 * ONE_IN if held else 2), generator)
    kept = held_out(found.source) == held
    return Batch(found.source[kept][:many], found.target[kept][:many])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, seen: Tensor, mask: Tensor) -> Tensor:
        """Attends from x to `seen` where the mask is true."""
        query, key, value = (
            product(rows).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for product, rows in ((self.query, x), (self.key, seen), (self.value, seen))
        )
        found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        result: Tensor = self.output(found.transpose(1, 2).flatten(2))
        return result


class Block(nn.Module):
    """x + part(x), with the norm after the sum (post-norm) or before the part (pre-norm)."""

    def __init__(self, norm: str, part: nn.Module) -> None:
        super().__init__()
        self.part, self.norm, self.pre = part, evenorm.torch.LayerNorm(WIDTH), norm == "pre"

    def forward(self, x: Tensor, mask: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
        h = self.norm(x) if self.pre else x
        new = self.part(h) if mask is None else self.part(h, h if memory is None else memory, mask)
        result: Tensor = x + new if self.pre else self.norm(x + new)
        return result


def feed_forward() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Linear(INNER, WIDTH))


def positions(many: int) -> Tensor:
    """Sines and cosines of positions, with wavelengths from 2 pi up."""
    angle = torch.arange(many)[:, None] * torch.exp(-math.log(1e4) * torch.arange(0, WIDTH, 2) / WIDTH)
    return torch.stack([angle.sin(), angle.cos()], 2).flatten(1)


class Transformer(nn.Module):
    """The Transformer of Vaswani et al. (2017). Pre-norm adds a norm after the encoder and one after the decoder."""

    def __init__(self, norm: str, depth: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.ModuleList(
            nn.ModuleList([Block(norm, Attention()), Block(norm, feed_forward())]) for _ in range(depth)
        )
        self.decoder = nn.ModuleList(
            nn.ModuleList([Block(norm, Attention()), Block(norm, Attention()), Block(norm, feed_forward())])
            for _ in range(depth)
        )
        self.last = nn.ModuleList(evenorm.torch.LayerNorm(WIDTH) if norm == "pre" else nn.Identity() for _ in range(2))
        self.word = nn.Linear(WIDTH, WORDS)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=WIDTH**-0.5)

    def forward(self, source: Tensor, inputs: Tensor) -> Tensor:
        words, steps = source.shape[1], inputs.shape[1]
        seen = (source != PAD)[:, None, None]
        before = torch.ones(steps, steps, dtype=torch.bool).tril()
        memory = self.source(source) * WIDTH**0.5 + positions(words)
        for layer in self.encoder:
            attention, feed = layer.children()
            memory = feed(attention(memory, seen))
        memory = self.last[0](memory)
        x = self.target(inputs) * WIDTH**0.5 + positions(steps)
        for layer in self.decoder:
            attention, cross, feed = layer.children()
            x = feed(cross(attention(x, before), seen, memory))
        result: Tensor = self.word(self.last[1](x))
        return result


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def rate_at(step: int, settings: Settings) -> float:
    """The rate rises linearly in the warm-up, if any, and falls linearly to zero over all steps."""
    warm, steps = max(1, round(settings["warmup"] * settings["steps"])), settings["steps"]
    rate: float = settings["rate"] * min(1, (step + 1) / warm) * (1 - step / steps)
    return rate


def train(model: nn.Module, settings: Settings, generator: torch.Generator) -> list[float]:
    """Returns the losses; the last one is not finite if training diverged."""
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["rate"], betas=BETAS, eps=EPS, fused=True)
    losses: list[float] = []
    for step in range(settings["steps"]):
        optimizer.param_groups[0]["lr"] = rate_at(step, settings)
        data = made(SIZE, False, generator)
        loss = loss_of(model(data.source, data.inputs()), data.target)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def bits_of_padding(model: Transformer, data: Batch) -> dict[str, int]:
    """Bits of the logits at the answers' positions that change with what the masks should hide."""
    inputs, real = data.inputs(), data.target != PAD
    logits = model(data.source, inputs)
    padded = copy.deepcopy(model)
    for embedding in (padded.source, padded.target):
        embedding.weight[PAD] += 100
    later, known = inputs.clone(), real.clone()
    later[:, 3:], known[:, 3:] = BEGIN, False
    others = torch.cat([data.source[:1], data.source[1:].flip(0)]), torch.cat([inputs[:1], inputs[1:].flip(0)])
    wider = [nn.functional.pad(one, (0, 4), value=PAD) for one in (data.source, inputs)]
    return {
        "another vector for padding": batch.bits_apart(logits[real], padded(data.source, inputs)[real]),
        "other later tokens of the answer": batch.bits_apart(logits[known], model(data.source, later)[known]),
        "other strings in the batch": batch.bits_apart(logits[:1], model(*others)[:1]),
        "more padding": batch.bits_apart(logits[real], model(*wider)[:, : inputs.shape[1]][real]),
    }


def run(settings: Settings, seed: int) -> dict[str, Any]:
    model = Transformer(settings["norm"], settings["depth"])
    losses = train(model, settings, torch.Generator().manual_seed(seed))
    width = max(1, settings["steps"] // CURVE)
    held = made(HELD, True, torch.Generator().manual_seed(seed + 1000))
    with torch.no_grad():
        logits = model(held.source, held.inputs())
        # If each token is right after the right previous tokens, the decoder generates the whole answer correctly.
        right, real = logits.argmax(2) == held.target, held.target != PAD
        few = Batch(held.source[:SIZE], held.target[:SIZE])
        bits = bits_of_padding(model, few)
    return {
        "loss": curve(losses, width),
        "mean loss": number(mean(losses)),
        "steps to": reached(losses, TARGET),
        "held-out loss": number(float(loss_of(logits, held.target))),
        "exact": batch.share((right | ~real).all(1)),
        "bits": bits,
    }

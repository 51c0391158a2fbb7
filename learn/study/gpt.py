"""A character-level GPT on the text of Python's manual, with any norm before or after its branches."""

import hashlib
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import evenorm.torch

from ._sections import number

WIDTH, HEADS, CONTEXT, SYMBOLS = 32, 2, 32, 64
BLOCK, EVERY = 2048, 10  # characters of a block of text; one block in EVERY is held out


class Attention(nn.Module):
    """Causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.inputs(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.output = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.output(torch.relu(self.inner(x)))
        return result


class Residual(nn.Module):
    """x + f(x), with a norm before f and one after the sum. Pass an Identity for no norm."""

    def __init__(self, branch: Attention | FeedForward, before: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.branch, self.before, self.after = branch, before, after

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.after(x + self.branch(self.before(x)))
        return result


Maker = Callable[[int], nn.Module]
# True if a norm stands before each branch, after each sum, and after the last layer.
PLACES = {"none": (False, False, False), "post": (False, True, False), "pre": (True, False, True)}


class GPT(nn.Module):
    """Takes characters and returns the logits of each character's successor.

    The sum of the two embeddings has variance 1. Matrices have Glorot's initialisation, as in Xiong et al.; biases are
    0.
    """

    def __init__(self, depth: int, place: str, make: Maker = evenorm.torch.LayerNorm, still: bool = False) -> None:
        """With `still`, the last matrix of each branch is zero at first, so each layer is the identity."""
        super().__init__()
        before, after, final = PLACES[place]

        def norm(wanted: bool) -> nn.Module:
            return make(WIDTH) if wanted else nn.Identity()

        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.place = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.5**0.5)
        self.layers = nn.ModuleList(
            nn.Sequential(
                Residual(Attention(), norm(before), norm(after)),
                Residual(FeedForward(), norm(before), norm(after)),
            )
            for _ in range(depth)
        )
        self.last, self.head = norm(final), nn.Linear(WIDTH, SYMBOLS)
        with torch.no_grad():
            self.embed.weight.mul_(0.5**0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                for matrix in module.weight.split(WIDTH) if module.out_features == 3 * WIDTH else [module.weight]:
                    nn.init.xavier_uniform_(matrix)  # query, key and value are three matrices
                nn.init.zeros_(module.bias)
        if still:
            for module in self.modules():
                if isinstance(module, Residual):
                    nn.init.zeros_(module.branch.output.weight)

    def last_matrices(self) -> list[Tensor]:
        """The second matrix of each layer's feed-forward network."""
        return [part.output.weight for part in self.modules() if isinstance(part, FeedForward)]

    def stream(self, x: Tensor) -> list[Tensor]:
        """The embedding, and the residual stream after each layer."""
        found = [self.embed(x) + self.place[: x.shape[1]]]
        for layer in self.layers:
            found.append(layer(found[-1]))
        return found

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.last(self.stream(x)[-1]))
        return result


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    """The mean loss of each character's successor, in nats and in float32."""
    return nn.functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1).float(), windows[:, 1:].flatten())


def held_out(model: nn.Module, windows: Tensor) -> float | None:
    with torch.no_grad():
        return number(loss_of(model, windows).item(), 5)


@lru_cache
def manual() -> str:
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


@lru_cache
def split() -> tuple[Tensor, Tensor]:
    """Blocks of text as symbols: those to train on and those held out. All rare characters share one symbol."""
    text = manual()
    ordered = sorted(Counter(text).items(), key=lambda found: (-found[1], found[0]))
    symbols = {character: index + 1 for index, (character, _) in enumerate(ordered[: SYMBOLS - 1])}
    whole = torch.tensor([symbols.get(character, 0) for character in text])
    blocks = whole[: len(whole) // BLOCK * BLOCK].view(-1, BLOCK)
    held = torch.arange(len(blocks)) % EVERY == EVERY - 1
    return blocks[~held], blocks[held]


def windows(blocks: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Random windows of the text, each one character longer than the context."""
    rows = torch.randint(len(blocks), (count, 1), generator=generator)
    starts = torch.randint(BLOCK - CONTEXT, (count, 1), generator=generator)
    return blocks[rows, starts + torch.arange(CONTEXT + 1)]


def entropy(counts: Tensor) -> float:
    """The entropy of the successor given the row, in nats, from counts of rows and successors."""
    joint = counts.double() / counts.sum()
    known = joint / joint.sum(1, keepdim=True).clamp_min(1e-300)
    return float(-(joint * known.clamp_min(1e-300).log()).sum())


@lru_cache
def about() -> dict[str, Any]:
    """Facts about the text, and the losses of guessing by the frequency of characters and of pairs of characters."""
    blocks = torch.cat(split())
    pairs = torch.bincount((blocks[:, :-1] * SYMBOLS + blocks[:, 1:]).flatten(), minlength=SYMBOLS**2)
    pairs = pairs.view(SYMBOLS, SYMBOLS)
    return {
        "characters": len(manual()),
        "sha256": hashlib.sha256(manual().encode()).hexdigest(),
        "symbols": SYMBOLS,
        "unigram": entropy(pairs.sum(0, keepdim=True)),
        "bigram": entropy(pairs),
    }

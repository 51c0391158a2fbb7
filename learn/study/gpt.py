"""A character-level GPT on the text of Python's manual, with a norm of any kind in any place. For sections that train it."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import evenorm.torch

WIDTH, HEADS, CONTEXT, SYMBOLS = 32, 2, 32, 64
ALPHA = 0.5  # of tanh(alpha x), at first
BLOCK, EVERY = 2048, 10  # characters of a block of text; every tenth block is held out


class DynamicTanh(nn.Module):
    """DyT, in a norm's place (Zhu et al., arXiv:2503.10622): gamma tanh(alpha x) + beta."""

    def __init__(self, width: int, alpha: float = ALPHA) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(alpha))
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.tanh(self.alpha * x) + self.bias


class Attention(nn.Module):
    """Heads that see the past and the present."""

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
    """x + f(x), with norms before f, after it, and after the sum; an Identity where there is none."""

    def __init__(self, branch: Attention | FeedForward, norms: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branch = branch
        self.before, self.after, self.last = norms

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(x + self.after(self.branch(self.before(x))))
        return result


Maker = Callable[[int], nn.Module]
# Where norms stand: before the branch, after it, after the sum, and after the last layer.
PLACES = {
    "none": (False, False, False, False),
    "post": (False, False, True, False),
    "pre": (True, False, False, True),
    "both": (True, True, False, True),
}


class GPT(nn.Module):
    """Characters in, the logits of each one's successor out.

    Embeddings have variance 1 together, matrices Glorot and Bengio's (as Vaswani et al.'s code and Xiong et al.), biases 0.
    """

    def __init__(self, depth: int, place: str, make: Maker = evenorm.torch.LayerNorm, still: bool = False) -> None:
        """`still`: the last matrix of each branch begins as zero, and so each layer as the identity."""
        super().__init__()
        inside, final = PLACES[place][:3], PLACES[place][3]

        def norm(wanted: bool) -> nn.Module:
            return make(WIDTH) if wanted else nn.Identity()

        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.place = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.5**0.5)
        self.layers = nn.ModuleList(
            nn.Sequential(
                Residual(Attention(), [norm(one) for one in inside]),
                Residual(FeedForward(), [norm(one) for one in inside]),
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
        """The feed-forward networks' second ones, by layer."""
        return [part.output.weight for part in self.modules() if isinstance(part, FeedForward)]

    def stream(self, x: Tensor) -> list[Tensor]:
        """The embedding, and what each layer makes of it."""
        found = [self.embed(x) + self.place[: x.shape[1]]]
        for layer in self.layers:
            found.append(layer(found[-1]))
        return found

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.last(self.stream(x)[-1]))
        return result


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    """The mean loss of each character's successor, in nats."""
    return nn.functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


@lru_cache
def manual() -> str:
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


@lru_cache
def split() -> tuple[Tensor, Tensor]:
    """Blocks of text as symbols: those to train on, those held out. All rare characters are one symbol."""
    text = manual()
    ordered = sorted(Counter(text).items(), key=lambda found: (-found[1], found[0]))
    symbols = {character: index + 1 for index, (character, _) in enumerate(ordered[: SYMBOLS - 1])}
    whole = torch.tensor([symbols.get(character, 0) for character in text])
    blocks = whole[: len(whole) // BLOCK * BLOCK].view(-1, BLOCK)
    held = torch.arange(len(blocks)) % EVERY == EVERY - 1
    return blocks[~held], blocks[held]


def windows(blocks: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Pieces of text, each of a context and one character more, from anywhere."""
    rows = torch.randint(len(blocks), (count, 1), generator=generator)
    starts = torch.randint(BLOCK - CONTEXT, (count, 1), generator=generator)
    return blocks[rows, starts + torch.arange(CONTEXT + 1)]


def entropy(counts: Tensor) -> float:
    """Of the successor when the row is known, in nats; counts of rows and successors."""
    joint = counts.double() / counts.sum()
    known = joint / joint.sum(1, keepdim=True).clamp_min(1e-300)
    return float(-(joint * known.clamp_min(1e-300).log()).sum())


@lru_cache
def about() -> dict[str, Any]:
    """What the text is, and what who counts its characters, or its pairs of characters, gets for a loss."""
    blocks = torch.cat(split())
    pairs = torch.bincount((blocks[:, :-1] * SYMBOLS + blocks[:, 1:]).flatten(), minlength=SYMBOLS**2)
    pairs = pairs.view(SYMBOLS, SYMBOLS)
    return {
        "characters": len(manual()),
        "sha256": hashlib.sha256(manual().encode()).hexdigest(),
        "different characters": len(set(manual())),
        "symbols": SYMBOLS,
        "guess": math.log(SYMBOLS),
        "unigram": entropy(pairs.sum(0, keepdim=True)),
        "bigram": entropy(pairs),
    }

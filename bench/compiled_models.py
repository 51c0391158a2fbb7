"""Times models with PyTorch's norms and with evenorm's, compiled or eager, or group norms as they are.

Inductor fuses PyTorch's norm with its element-wise neighbours, but calls evenorm's norm as an opaque operator. Both models
share their parameters and take turns. A row shows medians and the median of the paired ratios (PyTorch's time over
evenorm's: above 1, evenorm is faster). With one thread, times are CPU time, which other work on the machine changes less.

A step is zero_grad, a forward pass, the mean of squares as the loss, and a backward pass. It has no optimizer, whose time
does not depend on the norms. The models of transformers have random weights.

    .venv/bin/python bench/compiled_models.py --threads 1
    .venv/bin/python bench/compiled_models.py --eager --models bert gpt2 llama vit convnext --dtypes float32 --runs 5
    .venv/bin/python bench/compiled_models.py --models chain llama --dtypes bfloat16
    .venv/bin/python bench/compiled_models.py --models group instance --eager --channels-last
"""

from __future__ import annotations

import argparse
import copy
import itertools
import statistics
import time
from typing import Any

import allocator
import torch
from torch import Tensor, nn

import evenorm.torch

TOKENS, IMAGES = (4, 128, 384), (4, 3, 96, 96)
# The shapes of each model's input.
SHAPES = {
    "chain": ((50, 768), (64, 768), (512, 768), (4096, 768), (700, 1024)),
    "block": ((64, 256), (512, 384)),
    "gpt2": (TOKENS,),
    "bert": (TOKENS,),
    "llama": (TOKENS,),
    "vit": (IMAGES,),
    "convnext": (IMAGES,),
    "group": (
        (8, 320, 64, 64),
        (2, 512, 32, 32),
        (16, 64, 56, 56),
        (2, 1280, 16, 16),
        (4, 256, 14, 14),
        (1, 128, 256, 256),
        (4, 256, 75, 75),
    ),
    "instance": ((8, 64, 112, 112),),
}
IMAGE_NORMS = ("group", "instance")


class Chain(nn.Module):
    """A norm among element-wise neighbours, which Inductor fuses it with."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(self.norm(x * 1.5 + 0.5)) + x


class Block(nn.Module):
    """A pre-norm feed-forward block: the norms are between matrix products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Transformer(nn.Module):
    """A model of transformers. Its input is embedded already, or an image."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import transformers

        size = {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 1536}
        config, options = {
            "gpt2": ("GPT2", {"n_embd": 384, "n_layer": 2, "n_head": 6, "vocab_size": 50257}),
            "bert": ("Bert", {**size, "vocab_size": 64}),
            "llama": ("Llama", {**size, "vocab_size": 64}),
            "vit": ("ViT", {**size, "image_size": 96, "patch_size": 8}),
            "convnext": ("ConvNext", {"hidden_sizes": [96, 192, 384, 768], "depths": [1, 1, 2, 1]}),
        }[name]
        settings = getattr(transformers, config + "Config")(**options)
        self.model = getattr(transformers, config + "Model")(settings).eval()
        self.takes = "pixel_values" if IMAGES in SHAPES[name] else "inputs_embeds"

    def forward(self, x: Tensor) -> Tensor:
        return self.model(**{self.takes: x}).last_hidden_state


def model_of(name: str, shape: tuple[int, ...]) -> nn.Module:
    if name == "group":
        return nn.Sequential(nn.GroupNorm(32, shape[1]))
    if name == "instance":
        return nn.Sequential(nn.InstanceNorm2d(shape[1], affine=True))
    if name == "chain":
        return Chain(shape[-1])
    return Block(shape[-1]) if name == "block" else Transformer(name)


def seconds(model: nn.Module, x: Tensor, step: bool, count: int) -> float:
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(count):
        if step:
            x.grad = None
            model.zero_grad()
            model(x).square().mean().backward()
        else:
            model(x)
    return (clock() - start) / count


def compare(model: nn.Module, x: Tensor, step: bool, eager: bool, rounds: int) -> tuple[float, float, float]:
    """Returns PyTorch's and evenorm's medians in seconds, and the median ratio."""
    converted = copy.deepcopy(model, {id(p): p for p in model.parameters()})  # with the same parameters
    evenorm.torch.convert(converted)
    with torch.set_grad_enabled(step):
        models: list[Any] = [m if eager else torch.compile(m, fullgraph=True) for m in (model, converted)]
        for m in models:
            seconds(m, x, step, 3)  # compiles
        count = max(1, int(0.01 / seconds(models[0], x, step, 3)))
        times = []
        for turn in range(rounds):
            took = {m: seconds(m, x, step, count) for m in models[:: (-1) ** turn]}
            times.append([took[m] for m in models])
    theirs, ours = (statistics.median(t) for t in zip(*times, strict=True))
    return theirs, ours, statistics.median(a / b for a, b in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=16, help="even, so that each goes first equally often")
    parser.add_argument("--runs", type=int, default=1, help="with new models, of which to show medians")
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=[n for n in SHAPES if n not in IMAGE_NORMS])
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--channels-last", action="store_true", help="the memory format of images")
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    allocator.restart_with_it()
    torch.set_num_threads(arguments.threads)
    print(f"{'model':9}{'shape':>14}{'type':>10}{'pass':>9}{'torch us':>11}{'evenorm us':>12}{'ratio':>7}")
    ratios = []
    inputs = [(name, shape) for name in arguments.models for shape in SHAPES[name]]
    for (name, shape), dtype, step in itertools.product(inputs, arguments.dtypes, (False, True)):
        x = torch.randn(shape, dtype=getattr(torch, dtype))
        if arguments.channels_last and x.dim() == 4:
            x = x.to(memory_format=torch.channels_last)
        x.requires_grad_(step and shape != IMAGES)
        runs = []
        for _ in range(arguments.runs):
            torch._dynamo.reset()
            runs.append(compare(model_of(name, shape).to(x.dtype), x, step, arguments.eager, arguments.rounds))
        theirs, ours, ratio = (statistics.median(t) for t in zip(*runs, strict=True))
        ratios.append(ratio)
        row = f"{name:9}{'x'.join(map(str, shape)):>14}{dtype:>10}{'step' if step else 'forward':>9}"
        print(f"{row}{theirs * 1e6:11.1f}{ours * 1e6:12.1f}{ratio:7.2f}", flush=True)
    print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()

"""Every subset of wanted gradients of every operator, eager, compiled and vmapped, for comparing both registrations.
Run as a program, it saves the answers for the given ways to a file, which another process compares."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import vmap
from torch_cases import outputs

import evenorm.torch

COLUMNS = 6
WAYS = ("eager", "vmapped", "vmapped rows", "batched gradients", "compiled")
Answers = dict[tuple[Any, ...], Any]
T = TypeVar("T")


def subsets(items: Iterable[T]) -> list[tuple[T, ...]]:
    items = list(items)
    return [s for count in range(len(items) + 1) for s in itertools.combinations(items, count)]


def functions() -> dict[str, tuple[Callable[..., Any], str]]:
    """The functions, and the kinds of their tensors by first letters: x, residual, weight, bias."""
    t, shape = evenorm.torch, (COLUMNS,)
    return {
        "layer": (lambda x, w, b: t.layer_norm(x, shape, w, b), "xwb"),
        "rms": (lambda x, w, b: t.rms_norm(x, shape, w, bias=b), "xwb"),
        "add_layer": (lambda x, r, w, b: t.add_layer_norm(x, r, shape, w, b, 1e-5, 0.75), "xrwb"),
        "add_rms": (lambda x, r, w: t.add_rms_norm(x, r, shape, w, 1e-6, 0.75), "xrw"),
    }


def tensor(kind: str, rows: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A random tensor. x and gradients have the given type; residual, weight and bias are float32."""
    size = (COLUMNS,) if kind in "wb" else (*rows, COLUMNS)
    seed = torch.Generator().manual_seed(ord(kind))
    return torch.randn(size, generator=seed).to(torch.float32 if kind in "rwb" else dtype)


def tensors_of(kinds: str, rows: Sequence[int], dtype: torch.dtype, way: str) -> tuple[list[Tensor], tuple[Any, ...]]:
    """Returns the tensors, and their axes for vmap."""
    made = [tensor(kind, rows, dtype) for kind in kinds]
    if way == "vmapped":
        made = [torch.stack([t, t + 1, -t]) if len(rows) == 1 else t.expand(0, *t.shape) for t in made]
        return made, (0,) * len(made)
    return made, tuple(None if kind in "wb" else 0 for kind in kinds)


def gradients(results: list[Tensor], leaves: list[Tensor], batched: bool) -> tuple[Tensor | None, ...]:
    seeds = [tensor("y", r.shape[:-1], r.dtype) for r in results]
    if batched:
        seeds = [torch.stack([s, 2 * s]) for s in seeds]
    return torch.autograd.grad(results, leaves, seeds, retain_graph=True, allow_unused=True, is_grads_batched=batched)


def of_function(name: str, way: str, rows: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[Any, Any]]:
    function, kinds = functions()[name]
    made, dims = tensors_of(kinds, rows, dtype, way)
    if way.startswith("vmapped"):
        function = vmap(function, in_dims=dims)
    elif way == "compiled":
        function = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=False)
    for needed in subsets(range(len(kinds))):
        torch._dynamo.reset()
        leaves = [t.clone().requires_grad_(i in needed) for i, t in enumerate(made)]
        results = outputs(function(*leaves))
        yield (needed,), (tuple(r.detach() for r in results), tuple(r.requires_grad for r in results))
        for given, wanted in itertools.product(subsets(range(len(results))), subsets(needed)):
            reached = [results[i] for i in given if results[i].requires_grad]
            if reached and wanted:
                found = gradients(reached, [leaves[i] for i in wanted], way == "batched gradients")
                yield (needed, given, wanted), found


def of_operator(name: str, way: str, rows: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[Any, Any]]:
    """Calls the backward operator with every mask, with and without a gradient of the sum."""
    kinds = "yxws"
    made, dims = tensors_of(kinds, rows, dtype, way)
    operator = getattr(torch.ops.evenorm, f"{name}_norm_backward")
    for mask in itertools.product((False, True), repeat=3):
        for with_sum in (False, True):

            def call(dy, x, w, s, mask=mask, with_sum=with_sum):
                of_sum = s if with_sum else None
                return operator(dy, x, [COLUMNS], w, torch.float32, 1e-5, mask, of_sum)

            torch._dynamo.reset()
            if way.startswith("vmapped"):
                call = vmap(call, in_dims=dims)
            elif way == "compiled":
                call = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=False)
            yield (mask, with_sum), call(*made)


def answers(way: str) -> Answers:
    found: Answers = {}
    rows = [(5,), (0,)] + ([(2, 0)] if way.startswith("vmapped") else [])  # the last: no rows, or an empty batch
    dtypes = (torch.float32,) if way == "compiled" else (torch.float32, torch.bfloat16)  # compiling is slow
    for sizes, dtype in itertools.product(rows, dtypes):
        for name in functions():
            found |= {(name, sizes, str(dtype), *key): value for key, value in of_function(name, way, sizes, dtype)}
        for name in ("layer", "rms") if way != "batched gradients" else ():
            key = (f"{name}_backward", sizes, str(dtype))
            found |= {(*key, *rest): value for rest, value in of_operator(name, way, sizes, dtype)}
    return found


if __name__ == "__main__":
    torch.save({way: answers(way) for way in sys.argv[2:]}, sys.argv[1])

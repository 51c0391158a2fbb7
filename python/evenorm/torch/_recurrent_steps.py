"""The arithmetic of the normalised recurrent layers: one step of each, and all steps of a packed sequence.

It uses tensors only; _recurrent_base.py handles options, arguments and PackedSequence. Sequences are packed as in
PyTorch: the rows of step 0, then those of step 1, and so on, longest sequence first. So the rows of a step belong to
the first sequences of the batch.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._functions import layer_norm

Tensors = tuple[Tensor, ...]
Step = Callable[[Tensors, Tensors], Tensors]  # (this step's projected input, state) -> state; state[0] is the output


class Weights(NamedTuple):
    """The parameters of one layer in one direction, under their names in the modules."""

    weight_ih: Tensor
    weight_hh: Tensor
    gain_ih: Tensor
    gain_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    gain_c: Tensor | None = None
    bias_c: Tensor | None = None
    weight_hr: Tensor | None = None

    @classmethod
    def of(cls, module: nn.Module, suffix: str = "") -> "Weights":
        """The module's parameters whose names end in suffix."""
        named: dict[str, Any] = {name: getattr(module, name + suffix, None) for name in cls._fields}
        return cls(**named)


def lstm_input(x: Tensor, w: Weights, eps: float) -> Tensors:
    """LN(W_ih x) for any number of rows: the part of a step that does not depend on the state."""
    return (_norm(F.linear(x, w.weight_ih), w.gain_ih, w.bias_ih, eps),)


def lstm_step(rows: Tensors, state: Tensors, w: Weights, eps: float) -> Tensors:
    """(h, c) after one step, from lstm_input's rows and (h, c) before it."""
    assert w.gain_c is not None
    h, c = state
    i, f, g, o = (rows[0] + _norm(F.linear(h, w.weight_hh), w.gain_hh, w.bias_hh, eps)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(_norm(c, w.gain_c, w.bias_c, eps))
    return (h if w.weight_hr is None else F.linear(h, w.weight_hr)), c


def gru_input(x: Tensor, w: Weights, eps: float) -> Tensors:
    """LN(W_ih x) for any number of rows, over both gates together and over the candidate."""
    return _norm_in_parts(F.linear(x, w.weight_ih), w.gain_ih, w.bias_ih, eps)


def gru_step(rows: Tensors, state: Tensors, w: Weights, eps: float) -> Tensors:
    """(h,) after one step, from gru_input's rows and (h,) before it."""
    (h,) = state
    gates, candidate = _norm_in_parts(F.linear(h, w.weight_hh), w.gain_hh, w.bias_hh, eps)
    r, z = torch.sigmoid(rows[0] + gates).chunk(2, -1)
    n = torch.tanh(rows[1] + r * candidate)
    return (n + z * (h - n),)


def _norm(x: Tensor, gain: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    if gain.element_size() < x.element_size():  # under autocast: 16-bit parameters, but a float32 state
        gain, bias = gain.to(x.dtype), None if bias is None else bias.to(x.dtype)
    return layer_norm(x, (int(x.shape[-1]),), gain, bias, eps)


def _norm_in_parts(x: Tensor, gain: Tensor, bias: Tensor | None, eps: float) -> Tensors:
    sizes = [2 * x.shape[-1] // 3, x.shape[-1] // 3]
    biases: Iterable[Tensor | None] = (None, None) if bias is None else torch.split(bias, sizes)
    parts = zip(torch.split(x, sizes, -1), torch.split(gain, sizes), biases, strict=True)
    return tuple(_norm(part, part_gain, part_bias, eps) for part, part_gain, part_bias in parts)


def scan(step: Step, inputs: Tensors, state: Tensors, sizes: Sequence[int], reverse: bool) -> tuple[Tensor, Tensors]:
    """Runs all steps of one layer in one direction.

    inputs are packed rows, sum(sizes) in each tensor. state has sizes[0] sequences. sizes are the rows of each step,
    which never grow. Returns the packed outputs and each sequence's last state: after its last step, or, in reverse,
    after its first step.
    """
    steps = list(zip(*(torch.split(rows, list(sizes)) for rows in inputs), strict=True))
    return _backwards(step, steps, state, sizes) if reverse else _forwards(step, steps, state, sizes)


def _forwards(step: Step, steps: list[Tensors], state: Tensors, sizes: Sequence[int]) -> tuple[Tensor, Tensors]:
    outputs: list[Tensor] = []
    ended: list[Tensors] = []  # states of ended sequences, the shortest first: they are at the end of the batch
    running = sizes[0]
    for rows, size in zip(steps, sizes, strict=True):
        if size < running:
            ended.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
            running = size
        state = step(rows, state)
        outputs.append(state[0])
    if ended:
        state = tuple(torch.cat(parts) for parts in zip(state, *reversed(ended), strict=True))
    return torch.cat(outputs), state


def _backwards(step: Step, steps: list[Tensors], first: Tensors, sizes: Sequence[int]) -> tuple[Tensor, Tensors]:
    outputs: list[Tensor] = []
    running = sizes[-1]
    state = tuple(part[:running] for part in first)
    for rows, size in zip(reversed(steps), reversed(sizes), strict=True):
        if size > running:
            state = tuple(torch.cat((now, part[running:size])) for now, part in zip(state, first, strict=True))
            running = size
        state = step(rows, state)
        outputs.append(state[0])
    return torch.cat(outputs[::-1]), state

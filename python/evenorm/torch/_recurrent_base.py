"""Base classes of the normalised recurrent modules: parameters, options, arguments, packing, layers and directions.

_recurrent.py has the public classes, _recurrent_steps.py the arithmetic.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ._recurrent_steps import Tensors, Weights, gru_input, gru_step, lstm_input, lstm_step, scan
from ._tracing import Module


def _checked_eps(eps: float) -> float:
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise TypeError(f"eps should be of type float, got: {type(eps).__name__}")
    if not eps >= 0:
        raise ValueError(f"eps should be at least 0, got: {eps}")
    return float(eps)


def _is_autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _reset_norms(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if name.startswith("gain"):
            nn.init.ones_(parameter)
        elif name.startswith("bias"):
            nn.init.zeros_(parameter)


class _Normalised(Module):
    """What the normalised modules add to torch.nn's: eps, and how norms are initialised."""

    eps: float

    def reset_parameters(self) -> None:
        """Initialises weights like torch.nn's modules, uniformly within 1 / sqrt(hidden_size), gains to 1 and biases
        to 0, as in the paper."""
        super().reset_parameters()  # type: ignore[misc]
        _reset_norms(self)

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", eps={self.eps}" if self.eps != 1e-5 else "")


class LayerNormRNN(_Normalised, nn.RNNBase):
    """Base class of LayerNormLSTM and LayerNormGRU: parameters, packing, layers and directions."""

    def __init__(self, mode: str, *args: Any, eps: float, **kwargs: Any) -> None:
        super().__init__(mode, *args, **kwargs)
        self.eps = _checked_eps(eps)
        suffixes = [name.removeprefix("weight_ih") for name in self._flat_weights_names if "weight_ih" in name]
        for suffix, names in zip(suffixes, self._all_weights, strict=True):
            for name, size in self._norm_sizes().items():
                like = getattr(self, f"weight_ih{suffix}")
                setattr(self, name + suffix, nn.Parameter(torch.empty(size, device=like.device, dtype=like.dtype)))
                names.append(name + suffix)
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self._init_flat_weights()
        _reset_norms(self)

    def _norm_sizes(self) -> dict[str, int]:
        """The parameters that torch.nn's module lacks, for each layer and direction, and their sizes."""
        gates = {"LSTM": 4, "GRU": 3}[self.mode] * self.hidden_size
        sizes = {"gain_ih": gates, "gain_hh": gates}
        if self.mode == "LSTM":
            sizes |= {"gain_c": self.hidden_size} | ({"bias_c": self.hidden_size} if self.bias else {})
        return sizes

    def flatten_parameters(self) -> None:
        """Does nothing: no cuDNN kernel needs the parameters in one block."""

    def _state_sizes(self) -> tuple[int, ...]:
        """The columns of each part of the state, with the output first."""
        return (self.proj_size or self.hidden_size, self.hidden_size)[: 2 if self.mode == "LSTM" else 1]

    def run(self, input: Tensor | PackedSequence, state: Tensors | None) -> tuple[Any, Tensors]:
        if isinstance(input, PackedSequence):
            return self._run_packed(input, state)
        if not isinstance(input, Tensor):
            raise TypeError(f"input should be a Tensor or a PackedSequence, got: {type(input).__name__}")
        kind = type(self).__name__
        if input.dim() not in (2, 3):
            raise ValueError(f"{kind}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if state is not None and any(part.dim() != input.dim() for part in state):
            got = ", ".join(f"{part.dim()}D" for part in state)
            raise RuntimeError(f"{kind}: Expected hx to be {input.dim()}D, as input is, got {got} instead")
        batched = input.dim() == 3
        if not batched:
            input, state = input.unsqueeze(1), None if state is None else tuple(part.unsqueeze(1) for part in state)
        elif self.batch_first:
            input = input.transpose(0, 1)
        steps, batch = input.shape[:2]
        if steps == 0:
            raise RuntimeError(f"{kind}: Expected sequence length to be larger than 0")
        self._check(input, input.shape[-1], state, batch)
        rows, state = self._run_layers(input.flatten(0, 1), state, [batch] * steps)
        rows, state = self._in_type_of_autocast(rows, state)
        output = rows.reshape(steps, batch, rows.shape[-1])
        if not batched:
            return output.squeeze(1), tuple(part.squeeze(1) for part in state)
        return (output.transpose(0, 1) if self.batch_first else output), state

    def _in_type_of_autocast(self, rows: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Converts results to the types that torch.nn has under autocast: an LSTM's have autocast's type. Packed
        sequences, projections and GRUs, which have no fused kernel, keep the state's type."""
        device = rows.device.type
        if self.mode != "LSTM" or self.proj_size or rows.dtype == torch.float64 or not _is_autocast(device):
            return rows, state
        dtype = torch.get_autocast_dtype(device)
        return rows.to(dtype), tuple(part.to(dtype) for part in state)

    def _run_packed(self, input: PackedSequence, state: Tensors | None) -> tuple[PackedSequence, Tensors]:
        rows, batch_sizes, to_sorted, from_sorted = input
        sizes = batch_sizes.tolist()
        if rows.dim() != 2:
            raise RuntimeError(f"{type(self).__name__}: Expected packed data to be 2D, got {rows.dim()}D instead")
        self._check(rows, rows.shape[-1], state, sizes[0])
        if state is not None and to_sorted is not None:
            state = tuple(part.index_select(1, to_sorted) for part in state)
        rows, state = self._run_layers(rows, state, sizes)
        if from_sorted is not None:
            state = tuple(part.index_select(1, from_sorted) for part in state)
        return PackedSequence(rows, batch_sizes, to_sorted, from_sorted), state

    def _check(self, rows: Tensor, columns: int, state: Tensors | None, batch: int) -> None:
        dtype = self.weight_ih_l0.dtype
        kind = type(self).__name__
        autocast = _is_autocast(rows.device.type)
        if rows.dtype != dtype and not autocast:
            raise ValueError(f"{kind}: Expected input to be of the weights' type {dtype}, got {rows.dtype} instead")
        if columns != self.input_size:
            raise RuntimeError(f"{kind}: Expected input.size(-1) to be input_size {self.input_size}, got {columns}")
        layers = self.num_layers * (1 + self.bidirectional)
        for index, (part, size) in enumerate(zip(state or (), self._state_sizes(), strict=state is not None)):
            name = f"hx[{index}]" if self.mode == "LSTM" else "hx"
            if tuple(part.shape) != (layers, batch, size):
                expected = f"{(layers, batch, size)} (layers and directions, batch, columns)"
                raise RuntimeError(f"{kind}: Expected {name} of shape {expected}, got {tuple(part.shape)}")
            if part.dtype != rows.dtype and not autocast:
                raise ValueError(f"{kind}: Expected {name} to be of input's type {rows.dtype}, got {part.dtype}")

    def _run_layers(self, rows: Tensor, state: Tensors | None, sizes: list[int]) -> tuple[Tensor, Tensors]:
        """Runs packed rows through all layers. Returns the last layer's packed outputs and every layer's last state."""
        project, one_step = (lstm_input, lstm_step) if self.mode == "LSTM" else (gru_input, gru_step)
        ends: list[Tensors] = []
        for layer in range(self.num_layers):
            if layer > 0:
                rows = F.dropout(rows, self.dropout, self.training)
            outputs = []
            for direction in range(1 + self.bidirectional):
                w = Weights.of(self, f"_l{layer}" + "_reverse" * direction)
                if state is None:
                    first = tuple(rows.new_zeros(sizes[0], size) for size in self._state_sizes())
                else:
                    first = tuple(part[len(ends)] for part in state)
                step = partial(one_step, w=w, eps=self.eps)
                output, end = scan(step, project(rows, w, self.eps), first, sizes, reverse=direction == 1)
                outputs.append(output)
                ends.append(end)
            rows = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
        return rows, tuple(torch.stack(parts) for parts in zip(*ends, strict=True))


class LayerNormCell(_Normalised, nn.RNNCellBase):
    """Base class of both cells."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, gates: int, device: Any, dtype: Any, eps: float
    ) -> None:
        super().__init__(input_size, hidden_size, bias, gates, device, dtype)
        self.eps = _checked_eps(eps)
        self.add("gain_ih", gates * hidden_size)
        self.add("gain_hh", gates * hidden_size)

    def add(self, name: str, size: int | None) -> None:
        like = self.weight_ih
        empty = None if size is None else torch.empty(size, device=like.device, dtype=like.dtype)
        self.register_parameter(name, None if empty is None else nn.Parameter(empty))
        _reset_norms(self)

    def state(self, input: Tensor, state: Tensors | None, parts: int) -> Tensors:
        kind = type(self).__name__
        if not isinstance(input, Tensor):
            raise TypeError(f"input should be a Tensor, got: {type(input).__name__}")
        if input.dim() not in (1, 2):
            raise ValueError(f"{kind}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{kind}: Expected input.size(-1) to be input_size {self.input_size}, got {input.shape[-1]}"
            )
        shape = (*input.shape[:-1], self.hidden_size)
        if state is None:
            return (input.new_zeros(shape),) * parts
        for index, part in enumerate(state):
            if tuple(part.shape) != shape:
                name = f"hx[{index}]" if parts > 1 else "hx"
                raise RuntimeError(f"{kind}: Expected {name} of shape {tuple(shape)}, got {tuple(part.shape)}")
        return state


def pair(hx: object) -> Tensors | None:
    if hx is None:
        return None
    if not isinstance(hx, tuple | list) or len(hx) != 2 or not all(isinstance(part, Tensor) for part in hx):
        got = f"{len(hx)} of them" if isinstance(hx, tuple | list) else type(hx).__name__
        raise TypeError(f"hx should be a pair of tensors (h_0, c_0), got: {got}")
    return tuple(hx)


def single(hx: object) -> Tensors | None:
    if hx is None or isinstance(hx, Tensor):
        return None if hx is None else (hx,)
    raise TypeError(f"hx should be a Tensor, got: {type(hx).__name__}")

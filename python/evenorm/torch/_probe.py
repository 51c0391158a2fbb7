"""Runs a module's own forward on rows of many kinds without changing the module, and records inputs and outputs.

Rows are compared along the last axes. A forward over the first axis after the batch's gets the same rows with that axis
moved.
"""

import math
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from ._look_alikes import BIASES, FIRST, LAST, WEIGHTS, Types
from ._state import Memory

FREE_COLS = (5, 64)  # row lengths to try if no parameter fixes the length
LONG_COLS = 2**14  # a further row length, for rows with an outlier
MOST_SQUARE = 2**24  # most elements of an x with two axes as long as a row, which is tried for rows of up to 4096
MOST_ELEMENTS = 2**12  # most elements of an x all of whose axes are as long as a row

# Each row is scale * (mean + normal). The scales reveal every eps, or a clamp in its place. The means tell layer norm
# from RMS norm, and accurate sums from inaccurate ones.
ROWS = torch.tensor(
    [
        *((1, 0), (1, 0), (1, 3), (1, 100), (1, -40), (1e3, 0), (1e4, 0), (0.3, 0)),
        *((3e-2, 0), (1e-2, 0), (3e-3, 0), (1e-3, 1), (1e-4, 0), (3e-6, 0), (0, 0)),
    ],
    dtype=torch.float64,
)
# A correct formula in float32 can still square and sum these rows; their gradients may overflow.
LARGE_ROWS = torch.tensor([(1e5, 0), (1e8, 0), (1e12, 0), (1e15, 0), (1, 0)], dtype=torch.float64)
# Down to float32's subnormal numbers, which reveal a clamp in place of eps, or a negligible eps.
SMALL_ROWS = torch.tensor([(10.0**-k, 0) for k in (7, 9, 12, 15, 18, 24, 30, 38, 43)], dtype=torch.float64)
OUTLIERS = torch.tensor((1e4, -1e4, 300, -30), dtype=torch.float64)  # each replaces one element of a normal row
SMALLEST_DY = 3e-6  # the size of dy for rows of zeros and of tiny numbers
FEW_ROWS = ((1, 3), (1e3, 0), (3e-2, 0))  # used one at a time when x is a single row


class StateChanged(Exception):
    """A forward changed something else than its output. The exception's argument is the name of what changed."""


@dataclass(frozen=True)
class Seen:
    """The input and output of a forward, as rows, and its gradients."""

    probe: nn.Module
    rows: Tensor
    x: Tensor  # the forward's argument, which requires a gradient
    y: Tensor  # the forward's result
    axis: int
    row_axes: int

    @property
    def y_rows(self) -> Tensor:
        return self.y if self.axis == LAST else self.y.movedim(FIRST, -1)

    @cached_property
    def dy(self) -> Tensor:
        """A random dy. Its rows shrink with small rows of x, whose gradients f16 could not hold otherwise."""
        random = torch.randn(self.rows.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        shape = self.rows.shape[self.rows.dim() - self.row_axes :]
        axes = tuple(range(-len(shape), 0))
        return (random * self.rows.double().abs().amax(axes, keepdim=True).clamp(SMALLEST_DY, 1)).to(self.y.dtype)

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.probe._parameters.items() if value is not None}

    @cached_property
    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradients of the rows and of each parameter."""
        inputs = [self.x, *self.parameters.values()]
        dx, *rest = torch.autograd.grad(self.y_rows, inputs, self.dy, allow_unused=True)
        return dx if self.axis == LAST or dx is None else dx.movedim(FIRST, -1), *rest


class Prober:
    """Runs the forward of a module's class on copies of the module, called probes."""

    def __init__(self, module: nn.Module, row_axes: int) -> None:
        self.module, self.row_axes = module, row_axes
        self.memory = Memory.of_shared(module)

    def see(
        self,
        rows: Tensor,
        axis: int,
        types: Types,
        training: bool,
        gradients: bool = False,
        transposed: bool = False,
        factor: float = 1,
    ) -> Seen | str:
        """Runs forward on the rows. Returns the result, or why it cannot be compared. The probe's weight and bias are
        multiplied by factor; x is transposed in memory if `transposed`."""
        probe = _probe(self.module, types[1], torch.Generator().manual_seed(8), training, factor)
        rows = rows.to(types[0])
        x = rows if axis == LAST else rows.movedim(-1, FIRST)
        x = (x.mT if transposed else x).clone(memory_format=torch.contiguous_format)
        x = (x.mT if transposed else x).requires_grad_(gradients)
        with torch.set_grad_enabled(gradients):
            y, error = self._forward(probe, x)
        if error is not None:
            return self._without_values() or f"it raised {type(error).__name__} when tried: {error}"[:200]
        return (
            Seen(probe, rows, x, y, axis, self.row_axes)
            if isinstance(y, Tensor)
            else f"its forward returns {type(y).__name__}, not a tensor"
        )

    def _forward(self, probe: nn.Module, x: Tensor) -> tuple[Any, Exception | None]:
        own = Memory.of_probe(probe, x)
        y, error = None, None
        try:
            y = type(self.module).forward(probe, x)
        except Exception as raised:  # the module's forward may raise anything
            error = raised
        changed = own.changed() or self.memory.changed()
        if changed is not None:
            raise StateChanged(changed)
        return y, error

    def _without_values(self) -> str | None:
        """Reports a tensor that a probe cannot fill because it is not a registered parameter or buffer."""
        for name, value in vars(self.module).items():
            if isinstance(value, Tensor) and (value.is_meta or type(value).__name__ == "FakeTensor"):
                return (
                    f"its attribute {name} is a tensor without values (on the meta device, or fake): convert it once "
                    "it has them"
                )
        return None


@contextmanager
def surroundings() -> Iterator[None]:
    """Enables gradients on the CPU in any of the caller's modes, and restores all random states afterwards."""
    numpy: Any = sys.modules.get("numpy")
    states = random.getstate(), None if numpy is None else numpy.random.get_state()
    with ExitStack() as stack:
        stack.enter_context(_disable_current_modes())  # fake tensors have no values to compare
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        stack.callback(random.setstate, states[0])
        if numpy is not None:
            stack.callback(numpy.random.set_state, states[1])
        yield


# --- inputs


def counts(shape: Sequence[int]) -> range:
    """The numbers of x's axes to try."""
    return range(len(shape), max(4, len(shape) + 1) + 1)


def places(count: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The axes of rows to try. With two axes, FIRST is the same as LAST."""
    return (LAST, FIRST) if len(shape) == 1 and count > 2 else (LAST,)


def plain(count: int, shape: tuple[int, ...]) -> list[Tensor]:
    """Rows in leading axes of different sizes, none of which is the length of a row."""
    if count == len(shape):
        return [rows(torch.tensor([row], dtype=torch.float64), (), shape) for row in FEW_ROWS]
    return [rows(ROWS, _sizes(count, shape), shape)]


def _sizes(count: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    leading = count - len(shape)
    sizes = [size for size in {1: (15, 16), 2: (3, 5, 7), 3: (2, 3, 5, 7)}[leading] if size not in shape]
    return tuple(sizes[:leading])


def of_one(count: int, shape: tuple[int, ...]) -> list[Tensor]:
    """One row in leading axes of size 1."""
    leading = count - len(shape)
    return [rows(ROWS[2:3], (1,) * leading, shape)] if leading else []


def square(count: int, shape: tuple[int, ...]) -> list[Tensor] | None:
    """Rows in leading axes as long as a row: all axes at once, or one after another. None if x would be too large."""
    leading, size = count - len(shape), shape[0]
    if leading == 0:
        return []
    if size**leading * math.prod(shape) <= MOST_ELEMENTS:
        return [rows(ROWS, (size,) * leading, shape)]
    if size * math.prod(shape) > MOST_SQUARE:
        return None
    sizes = ([size if i == at else 1 for i in range(leading)] for at in range(leading))
    return [rows(ROWS[:8], tuple(one), shape) for one in sizes]


def large(count: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Large rows. The largest are as large as they can be without the sum of squares overflowing in float32."""
    most = torch.finfo(torch.float32).max
    kinds = torch.cat([LARGE_ROWS, LARGE_ROWS.new_tensor([(math.sqrt(most / (32 * math.prod(shape))), 0)])])
    most = 0.9 * min(most, torch.finfo(dtype).max)
    return rows(kinds, _sizes(count, shape), shape).clamp(-most, most)


def outlying(count: int, shape: tuple[int, ...]) -> Tensor:
    """Rows with one outlier, whose |xhat| is close to the largest possible value, the root of the row's length."""
    x = rows(ROWS[:1], _sizes(count, shape), shape)
    flat = x.view(-1, math.prod(shape))
    at = torch.arange(len(flat))
    flat[at, at % flat.shape[1]] = OUTLIERS[at % len(OUTLIERS)].to(x.dtype)
    return x


def large_factor(dtype: torch.dtype) -> float:
    """A factor that makes a probe's weight and bias large, with outputs that still fit the type."""
    return 2.0**8 if dtype is torch.float16 else 2.0**20


def small(count: int, shape: tuple[int, ...]) -> Tensor:
    return rows(SMALL_ROWS, _sizes(count, shape), shape)


def not_finite(count: int, shape: tuple[int, ...]) -> Tensor:
    """Finite rows, with one row that has a NaN, one for each infinity, and one of infinities only."""
    x = rows(ROWS[:1], _sizes(count, shape), shape)
    flat = x.view(-1, math.prod(shape))
    for row, value in enumerate((math.nan, math.inf, -math.inf)):
        flat[row, 1] = value
    flat[3] = math.inf
    return x


def rows(kinds: Tensor, leading: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """Random rows of the given kinds, in turn. After 64 rows they repeat."""
    generator = torch.Generator().manual_seed(7)
    count = math.prod(leading)
    different = min(count, 64)
    x = torch.randn((different, *shape), generator=generator, dtype=torch.float64)
    kinds = kinds[torch.arange(different) % len(kinds)]
    scale, mean = kinds.reshape(different, 2, *(1 for _ in shape)).unbind(1)
    x = scale * (mean + x)
    if count > different:
        x = x.float()[torch.arange(count) % different]
    return x.reshape(*leading, *shape)


# --- the module


def _probe(
    module: nn.Module, dtype: torch.dtype | None, generator: torch.Generator, training: bool, factor: float
) -> nn.Module:
    """A module of the same class and attributes with random tensors and no hooks; the module itself is not changed.

    Weight and bias have both signs and sizes from 1/4 to 16, times factor. So w, 1 + w, |w|, a clamped w and no weight
    give different results.
    """

    def random_like(name: str, old: Tensor | None) -> Tensor | None:
        if old is None or dtype is None:
            return None
        value = torch.randn([int(size) for size in old.shape], generator=generator, dtype=torch.float64) * 0.25
        if name in WEIGHTS or name in BIASES:
            at = torch.arange(value.numel()).reshape(value.shape)
            sign, size = 1 - 2 * (at % 2), torch.tensor((0.5, 16.0, 12.0, 0.5), dtype=torch.float64)[at % 4]
            value = factor * sign * size * (1 + value.clamp(-0.5, 0.5))
        return value.to(dtype)

    made = object.__new__(type(module))
    parameters = {name: random_like(name, old) for name, old in module._parameters.items()}
    own = {
        "_parameters": {name: None if new is None else nn.Parameter(new) for name, new in parameters.items()},
        "_buffers": {name: random_like(name, old) for name, old in module._buffers.items()},
        "training": training,
    }
    made.__dict__ = {**vars(module), **own}
    return made

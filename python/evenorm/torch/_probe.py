"""Runs a module's own forward on rows of many kinds without changing the module, and records inputs and outputs.

Rows are made and compared as tensors (rows, columns). A Place turns them into an x of any number of axes, and back.
"""

import math
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from ._look_alikes import BIASES, FIRST, GROUPS, LAST, MOST_COLS, WEIGHTS, Recipe, Types
from ._state import Memory

FREE_COLS = (5, 64)  # row lengths to try if no parameter fixes the length
LONG_COLS = 2**14  # a further row length, for rows with an outlier
MOST_SQUARE = 2**16  # most elements of an x with two axes as long as a row, which is tried for rows of up to 256
MOST_ELEMENTS = 2**12  # most elements of an x all of whose axes are as long as a row
NARROW = 32  # modules for longer rows are tried with rows of this length first
MOST_COMPARED = 2**12  # columns of a row
PERIOD = 2**14  # random numbers of longer rows and parameters repeat

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


class Failure(str):
    """Why a forward has no result to compare, and the line of the forward that failed: later is more telling."""

    line = sys.maxsize  # it has run to its end


@dataclass(frozen=True)
class Place:
    """The sizes of an x, and where its rows lie."""

    axis: int
    sizes: tuple[int, ...]
    cols: int  # elements of a row

    @property
    def count(self) -> int:
        return math.prod(self.sizes) // self.cols

    def rows(self, x: Tensor) -> Tensor:
        return (x.movedim(FIRST, -1) if self.axis == FIRST else x).reshape(-1, self.cols)

    def x(self, rows: Tensor) -> Tensor:
        if self.axis != FIRST:
            return rows.reshape(self.sizes)
        return rows.reshape(self.sizes[0], *self.sizes[2:], self.cols).movedim(-1, FIRST)

    def spread(self, parameter: Tensor) -> Tensor:
        """Returns a parameter's elements for all elements of the rows."""
        if self.axis != LAST and parameter.numel() > 1:
            parameter = parameter.reshape(-1, *(1 for _ in self.sizes[2:]))
        return self.rows(parameter.expand(self.sizes))


@dataclass(frozen=True)
class Seen:
    """The input and output of a forward, and its gradients."""

    probe: nn.Module
    place: Place
    x: Tensor  # the forward's argument, which requires a gradient
    y: Tensor  # the forward's result

    @property
    def is_alike(self) -> bool:
        """True if y can be that of a norm."""
        x, y = self.x, self.y
        return (y.shape, y.dtype, y.layout, y.device) == (x.shape, x.dtype, x.layout, x.device)

    @property
    def rows(self) -> Tensor:
        return self.place.rows(self.x.detach())

    @cached_property
    def dy(self) -> Tensor:
        """A random dy. Its rows shrink with small rows of x, whose gradients f16 could not hold otherwise."""
        size = self.rows.abs().amax(1, keepdim=True).double().clamp(SMALLEST_DY, 1)
        dy = (size * _random(self.place.count, self.place.cols, seed=9)).to(self.y.dtype)
        return self.place.x(_repeated(dy, self.place.cols))

    def gradients(self, x: Tensor, y: Tensor) -> list[Tensor | None]:
        """The gradients of some columns of x's rows, and of some elements of each parameter, where they are used."""
        parameters = [value for value in self.probe._parameters.values() if value is not None]
        # Given dy as a tensor, PyTorch would import SymPy to compare its shape with y's.
        found = torch.autograd.grad((y * self.dy).sum(), [x, *parameters], retain_graph=True, allow_unused=True)
        rows = (None if t is None else self.place.rows(t) if not i else t.reshape(1, -1) for i, t in enumerate(found))
        return [None if t is None else some(t) for t in rows]


def some(rows: Tensor) -> Tensor:
    """The first columns, which have the outliers, and some of the others if there are many."""
    cols = rows.shape[1]
    if cols <= 2 * MOST_COMPARED:
        return rows
    return rows[:, torch.cat([torch.arange(64), torch.arange(64, cols, cols // MOST_COMPARED | 1)])]


class Prober:
    """Runs the forward of a module's class on copies of the module, called probes."""

    def __init__(self, module: nn.Module, memory: Memory) -> None:
        self.module, self.memory = module, memory
        self.probes: dict[Any, tuple[nn.Module, Memory]] = {}

    def see(
        self,
        rows: Tensor,
        place: Place,
        types: Types,
        training: bool = False,
        gradients: bool = False,
        order: Sequence[int] | None = None,
        factors: tuple[float, float] = (1, 1),
    ) -> Seen | Failure:
        """Runs forward on the rows. Returns the result, or why it cannot be compared. The probe's weight and bias are
        multiplied by factors; x's axes lie in memory in the given order."""
        key = types, training, factors
        probe, own = self.probes.get(key) or _probe(self.module, *key)
        self.probes[key] = probe, own
        x = place.x(rows.to(types[0]))
        order = range(x.dim()) if order is None else order
        x = x.permute(*order).clone(memory_format=torch.contiguous_format)
        x = x.permute([order.index(axis) for axis in range(x.dim())]).requires_grad_(gradients)
        with torch.set_grad_enabled(gradients):
            y, error = self._forward(probe, x, own)
        if error is not None:
            failure = Failure(self._without_values() or f"it raised {type(error).__name__} when tried: {error}"[:200])
            where = error.__traceback__ and error.__traceback__.tb_next
            failure.line = where.tb_lineno if where else 0
            return failure
        if not isinstance(y, Tensor):
            return Failure(f"its forward returns {type(y).__name__}, not a tensor")
        return Seen(probe, place, x, y)

    def _forward(self, probe: nn.Module, x: Tensor, own: Memory) -> tuple[Any, Exception | None]:
        given = Memory.of_tensor("x", x)
        y, error = self._run(probe, x)
        changed = given.changed() or own.changed() or self.memory.changed()
        if changed is not None:
            self.memory.accept_additions()  # a cache that is full does not change when the same x comes again
            self._run(probe, x)
            if given.changed() or own.changed() or self.memory.changed():
                raise StateChanged(changed)
        return y, error

    def _run(self, probe: nn.Module, x: Tensor) -> tuple[Any, Exception | None]:
        try:
            return type(self.module).forward(probe, x), None
        except Exception as error:  # the module's forward may raise anything
            return None, error

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
    """Enables gradients on the CPU in any of the caller's modes, hides warnings, and restores all random states."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(torch.set_warn_always, torch.is_warn_always_enabled())
        torch.set_warn_always(True)  # a warning that PyTorch gives once is still given after the trial
        stack.enter_context(_disable_current_modes())  # fake tensors have no values to compare
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(random_states())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        yield


@contextmanager
def random_states() -> Iterator[None]:
    """Restores the random states of PyTorch on the CPU, Python and NumPy."""
    numpy: Any = sys.modules.get("numpy")
    states = random.getstate(), None if numpy is None else numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(states[0])
            if numpy is not None:
                numpy.random.set_state(states[1])


# --- inputs


def counts(shape: Sequence[int]) -> range:
    """The numbers of x's axes to try."""
    return range(len(shape), max(5, len(shape) + 1) + 1)


def axes(count: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The places of rows to try. With two axes, FIRST is the same as LAST."""
    return (LAST,) if len(shape) > 1 or count < 2 else (LAST, GROUPS) if count == 2 else (LAST, FIRST, GROUPS)


def place(axis: int, leading: tuple[int, ...], shape: tuple[int, ...], groups: int = 1) -> Place:
    """The place of rows of this shape, or of groups of channels, among axes of other sizes."""
    if axis == LAST:
        return Place(axis, (*leading, *shape), math.prod(shape))
    cols = shape[0] if axis == FIRST else math.prod((*shape, *leading[1:])) // groups
    return Place(axis, (*leading[:1], *shape, *leading[1:]), cols)


def leading(axis: int, count: int, shape: tuple[int, ...], groups: int = 1) -> tuple[int, ...]:
    """Sizes of the other axes, all different, and none of which is the length of a row."""
    if axis == GROUPS:
        batch = max(2, -(-len(ROWS) // groups))
        return (batch + (batch == shape[0]), *(3, 5, 2)[: count - 2])
    others = count - len(shape)
    sizes = {1: (15, 16), 2: (3, 5, 7), 3: (2, 3, 5, 7)}.get(others, (1, 2, 3, 5, 7))
    return tuple([size for size in sizes if size not in shape][:others])


def square(count: int, shape: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """Sizes of other axes that are as long as a row: all at once, or one after another. None if x would be too large."""
    others, size = count - len(shape), shape[0]
    if others == 0:
        return []
    if size**others * math.prod(shape) <= MOST_ELEMENTS:
        return [(size,) * others]
    if size * math.prod(shape) > MOST_SQUARE:
        return None
    return [tuple([size if i == at else 1 for i in range(others)]) for at in range(others)]


def plain(place: Place, least: float) -> list[Tensor]:
    kinds = [ROWS] if place.count > 1 else ROWS.new_tensor(FEW_ROWS).split(1)
    return [rows(kind, place, least) for kind in kinds]


def large(place: Place, dtype: torch.dtype) -> Tensor:
    """Large rows. The largest are as large as they can be without the sum of squares overflowing in float32."""
    most = torch.finfo(torch.float32).max
    kinds = torch.cat([LARGE_ROWS, LARGE_ROWS.new_tensor([(math.sqrt(most / (32 * place.cols)), 0)])])
    most = 0.9 * min(most, torch.finfo(dtype).max)
    return rows(kinds, place).clamp(-most, most)


def outlying(place: Place) -> Tensor:
    """Rows with one outlier, whose |xhat| is close to the largest possible value, the root of the row's length."""
    x = rows(ROWS[:1], place)
    at = torch.arange(len(x))
    x[at, at % place.cols] = OUTLIERS[at % len(OUTLIERS)].to(x.dtype)
    return x


def not_finite(place: Place) -> Tensor:
    """Finite rows, with one row that has a NaN, one for each infinity, and one of infinities only."""
    x = rows(ROWS[:1], place)
    for row, value in enumerate((math.nan, math.inf, -math.inf)):
        x[row % len(x), 1] = value
    x[3 % len(x)] = math.inf
    return x


def balanced(place: Place) -> Tensor:
    """Tiny rows whose mean is exactly 0, so that only eps determines their norm."""
    half = _repeated(_random(place.count, place.cols // 2, seed=7) * 1e-18, place.cols // 2)
    return nn.functional.pad(torch.stack([half, -half], dim=2).flatten(1), (0, place.cols % 2))


def rows(kinds: Tensor, place: Place, least: float = 0.0) -> Tensor:
    """Random rows of the given kinds, in turn, none smaller than `least`. They repeat after a prime number of rows, so
    that samples and channels differ."""
    different = min(place.count, 61)
    kinds = kinds[torch.arange(different) % len(kinds)]
    scale, mean = kinds.T[:, :, None]
    x = _repeated(scale.clamp(min=2 * least) * (mean + _random(different, place.cols, seed=7)), place.cols)
    return x if place.count == different else x.float()[torch.arange(place.count) % different]


def _random(count: int, cols: int, seed: int) -> Tensor:
    """Normal random numbers for the first columns, which are repeated if there are many."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((count, min(cols, PERIOD)), generator=generator, dtype=torch.float64)


def _repeated(random: Tensor, cols: int) -> Tensor:
    return random if cols <= PERIOD else random.repeat(1, -(-cols // PERIOD))[:, :cols]


# --- the module


def _probe(module: nn.Module, types: Types, training: bool, factors: tuple[float, float]) -> tuple[nn.Module, Memory]:
    """A module of the same class and attributes with random tensors and no hooks, and the state that it has to itself.
    The module is not changed.

    Weight and bias have both signs and sizes from 1/4 to 16, times factors. So w, 1 + w, |w|, a clamped w and no weight
    give different results.
    """
    seed = iter(range(100, 200))

    def random_like(name: str, old: Tensor | None) -> Tensor | None:
        if old is None:
            return None
        count = math.prod(int(size) for size in old.shape)
        value = _random(1, count, next(seed)) * 0.25
        if name in WEIGHTS or name in BIASES:
            at = torch.arange(value.numel())
            sign, size = 1 - 2 * (at % 2), torch.tensor((0.5, 16.0, 12.0, 0.5), dtype=torch.float64)[at % 4]
            value = factors[name in BIASES] * sign * size * (1 + value.clamp(-0.5, 0.5))
        return _repeated(value.to(types[1] or types[0]), count).reshape(old.shape)

    made = object.__new__(type(module))
    parameters = {name: random_like(name, old) for name, old in module._parameters.items()}
    own = {
        "_parameters": {name: None if new is None else nn.Parameter(new) for name, new in parameters.items()},
        "_buffers": {name: random_like(name, old) for name, old in module._buffers.items()},
        "training": training,
    }
    made.__dict__ = {**vars(module), **own}
    made.__dict__.pop("forward", None)  # the class's, bound to module
    return made, Memory.of_probe(made)


def lengths(module: nn.Module) -> list[int]:
    """The lengths of rows that attributes may hold, as they are or as a root."""
    numbers = [value for value in vars(module).values() if type(value) in (int, float) and 1e-6 < value < 1e6]
    powers = (value**power for value in numbers for power in ((1,) if isinstance(value, int) else (2, -2)))
    return list(dict.fromkeys(round(n) for n in powers if 8 <= n <= MOST_COLS and math.isclose(n, round(n))))[:3]


def narrowed(module: nn.Module, recipe: Recipe) -> tuple[nn.Module, Recipe] | None:
    """A module like this one for rows of NARROW elements: its tensors and the attributes that hold lengths or a root
    of them are smaller. It is wrong if some length is written elsewhere. None if rows are not longer."""
    shape = recipe.shape(module) or ()
    if math.prod(shape) <= 2 * NARROW:
        return None
    groups = [value for name, value in vars(module).items() if "group" in name and isinstance(value, int)]
    narrow = next((4 * value for value in groups if 1 < value < math.prod(shape)), NARROW)
    short = {size: size if size <= NARROW else max(2, narrow - 4 * i) for i, size in enumerate(dict.fromkeys(shape))}
    short |= {math.prod(shape): math.prod(short[size] for size in shape)}

    def shorter(value: Any) -> Any:
        if type(value) in (tuple, list, torch.Size):
            return type(value)([shorter(one) for one in value])
        if type(value) is int:
            return short.get(value, value)
        if type(value) is float:
            roots = ((size**power, less**power) for size, less in short.items() for power in (1, 0.5, -0.5, -1))
            return next((less for root, less in roots if math.isclose(value, root, rel_tol=1e-6)), value)
        return value

    def less(old: Tensor | None) -> Tensor | None:
        return None if old is None else torch.empty(shorter(tuple(old.shape)), dtype=old.dtype, device="meta")

    made = object.__new__(type(module))
    made.__dict__ = {name: shorter(value) for name, value in vars(module).items()}
    for kind in ("_parameters", "_buffers"):
        made.__dict__[kind] = {name: less(old) for name, old in vars(module)[kind].items()}
    return made, replace(recipe, cols=shorter(recipe.cols))

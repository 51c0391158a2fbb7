"""Norms that are not torch.nn's own: recognises candidates, and makes the class that replaces theirs.

A module is a candidate by the names of its tensors or of its class; _trial.py decides whether it computes a norm. A
replaced module stays the same object. Its class becomes a subclass of its own class, so isinstance, hooks, parameters
and state_dict keys stay the same. The module's own forward still runs on all that was not tried: other types, devices,
numbers of axes and sizes.
"""

import copyreg
import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ._functions import has_overrides, layer_norm, rms_norm
from ._tracing import Module

WEIGHTS = ("weight", "scale", "gamma", "gain", "g", "w", "a_2", "alpha")
BIASES = ("bias", "shift", "beta", "offset", "b", "b_2")
MOST_COLS = 2**20  # the longest rows that are tried: longer ones take too much memory
LAST, FIRST = -1, 1  # the axes of rows: the last ones, or the first one after the batch's

Types = tuple[torch.dtype, torch.dtype | None]  # the types of x and of the weight


@dataclass(frozen=True)
class Recipe:
    """A norm, and the module's attributes that hold its tensors and eps."""

    kind: Literal["layer", "rms"]
    weight: str | None
    bias: str | None
    argument: str  # the name of forward's argument
    eps: float | None
    eps_name: str | None = None  # read at each call, so that a new value takes effect
    zero_centred: bool = False  # the norm multiplies by 1 + weight
    types: frozenset[Types] = frozenset()  # for which the module and evenorm agreed
    axes: tuple[tuple[int, int], ...] = ()  # the numbers of x's axes for which they agreed, each with LAST or FIRST
    ordered: frozenset[int] = frozenset()  # the numbers of axes for which the module's y has x's memory order
    square: bool = True  # they also agreed when other axes are as long as the row
    unlike: tuple[int, ...] = ()  # the numbers of axes for which the module computes something else
    _axis_of: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed here and not on first use: torch.compile would see it change and compile twice.
        object.__setattr__(self, "_axis_of", dict(self.axes))

    def __str__(self) -> str:
        name = "layer_norm" if self.kind == "layer" else "rms_norm"
        weight = "" if self.weight is None else f", {'1 + ' if self.zero_centred else ''}{self.weight}"
        bias = "" if self.bias is None else f", {self.bias}"
        eps = self.eps if self.eps_name is None else self.eps_name
        return f"{name}(x{weight}{bias}, eps={eps}{self._axes_text()}){_of_axes(', not of', self.unlike)}"

    def _axes_text(self) -> str:
        first = [count for count, axis in self.axes if axis == FIRST]
        if not first:
            return ""
        mixed = any(count > 2 and axis == LAST for count, axis in self.axes)
        return f", axes=(1,){_of_axes(' of', first) if mixed else ''}"

    def tensors(self, module: nn.Module) -> tuple[Tensor | None, Tensor | None]:
        """Returns the module's weight and bias."""
        weight = None if self.weight is None else getattr(module, self.weight)
        return weight, None if self.bias is None else getattr(module, self.bias)

    def shape(self, module: nn.Module) -> tuple[int, ...] | None:
        """Returns the shape of one row if the module determines it."""
        if self.weight is None:
            shape = getattr(module, "normalized_shape", None)
            return (shape,) if isinstance(shape, int) else None if shape is None else tuple(shape)
        sizes = getattr(module, self.weight).shape
        if len(sizes) > 1:
            long = tuple(size for size in sizes if size != 1)
            sizes = long if len(long) == 1 else sizes  # (C, 1, 1) broadcasts over the rows of images
        return tuple([int(size) for size in sizes])  # torch.jit.trace makes the sizes tensors

    def row(self, module: nn.Module) -> tuple[Tensor | None, Tensor | None, tuple[int, ...] | None]:
        """Returns the module's weight and bias in the shape of one row, and that shape."""
        weight, bias = self.tensors(module)
        shape = self.shape(module)
        if weight is not None and shape is not None and weight.dim() != len(shape):
            weight, bias = weight.reshape(shape), None if bias is None else bias.reshape(shape)
        return weight, bias, shape

    def eps_of(self, module: nn.Module) -> Any:
        return self.eps if self.eps_name is None else getattr(module, self.eps_name)

    def norm(self, module: nn.Module, x: Tensor) -> Tensor:
        """Normalises x over its last axes with evenorm."""
        weight, bias, shape = self.row(module)
        shape = shape or (int(x.shape[-1]),)
        eps = self.eps_of(module)
        if weight is not None and self.zero_centred:
            # Rounding 1 + weight to bf16 or f16 would lose most of the weight's digits.
            wide = torch.promote_types(weight.dtype, torch.float32)
            weight, bias = weight.to(wide) + 1, None if bias is None else bias.to(wide)
        if self.kind == "rms":
            return rms_norm(x, shape, weight, eps)
        assert eps is not None  # layer norm has no default eps
        if weight is not None and weight.requires_grad and not x.requires_grad and torch.is_grad_enabled():
            x = x.clone()  # layer norm saves x, which a hand-written one leaves to be changed in place
        return layer_norm(x, shape, weight, bias, eps)

    def compute(self, module: nn.Module, x: Tensor, axis: int) -> Tensor:
        """Computes the module's forward with evenorm, along the axis that axis() returned."""
        y = self.norm(module, x) if axis == LAST else self.norm(module, x.movedim(FIRST, -1)).movedim(-1, FIRST)
        return _in_order_of(x, y) if x.dim() in self.ordered else y

    def axis(self, module: nn.Module, x: object) -> int | None:
        """Returns the axis of x's rows, or None if evenorm is not known to agree with the module on such an x."""
        weight, bias = self.tensors(module)
        if not isinstance(x, Tensor) or has_overrides(x, weight, bias) or x.device.type != "cpu" or x.is_nested:
            return None
        if (x.dtype, None if weight is None else weight.dtype) not in self.types:
            return None
        if bias is not None and weight is not None and bias.dtype is not weight.dtype:
            return None
        axis: int | None = self._axis_of.get(x.dim())
        shape = None if axis is None else self.shape(module)
        if axis is None or shape is None:
            return axis
        if (x.shape[-len(shape) :] if axis == LAST else x.shape[1:2]) != shape:
            return None
        if not self.square and sum(size == shape[0] for size in x.shape) > 1:
            return None
        return axis


def _of_axes(of: str, counts: Sequence[int]) -> str:
    return f"{of} {', '.join(f'{count}-D' for count in counts)} x" if counts else ""


def _in_order_of(x: Tensor, y: Tensor) -> Tensor:
    """y with the memory order of x's axes, which PyTorch's element-wise operations keep."""
    if x.is_contiguous():
        return y.contiguous()
    if x.stride() == y.stride():
        return y
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    return y.permute(order).contiguous().permute([order.index(axis) for axis in range(x.dim())])


_made: dict[tuple[type[nn.Module], Recipe], type[nn.Module]] = {}


def stand_in(cls: type[nn.Module], recipe: Recipe) -> type[nn.Module]:
    """Returns the subclass of cls that computes recipe where it applies, and cls's forward elsewhere. It is cached."""
    if (cls, recipe) not in _made:
        _made.setdefault((cls, recipe), _make(cls, recipe))
    return _made[cls, recipe]


def _make(cls: type[nn.Module], recipe: Recipe) -> type[nn.Module]:
    old_forward: Callable[..., Any] = cls.forward

    @functools.wraps(old_forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        x = args[0] if len(args) == 1 and not kwargs else kwargs.get(recipe.argument) if len(kwargs) == 1 else None
        axis = None if args and kwargs else recipe.axis(self, x)
        if axis is None:
            return old_forward(self, *args, **kwargs)
        assert isinstance(x, Tensor)
        return recipe.compute(self, x, axis)

    def reduce(self: nn.Module, protocol: Any) -> Any:
        # The class has no importable name, so it is made again from cls and recipe.
        how = cls.__reduce_ex__(self, protocol)
        if isinstance(how, str):
            return how
        function, arguments, *rest = how
        if function is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return (function, arguments, *rest)
        return (restore, (cls, recipe), *rest)

    body = {
        "forward": forward,
        "__reduce_ex__": reduce,
        "__module__": cls.__module__,
        "_is_quantizable": True,  # static quantization knows the operations of cls's forward
        "evenorm_recipe": recipe,
    }
    return type(f"Evenorm{cls.__name__}", (Module, cls), body)


def restore(cls: type[nn.Module], recipe: Recipe) -> nn.Module:
    """Unpickling calls this to make an empty module of the class that replaces cls."""
    made = stand_in(cls, recipe)
    return made.__new__(made)


def candidate(module: nn.Module) -> Recipe | str | None:
    """Returns what the module may be: a recipe without kind and eps, to be tried. Returns a reason if it is called a
    norm but cannot be one, and None if it does not look like a norm."""
    cls = type(module)
    if cls.__module__.startswith("torch.ao.nn.quantized.") and isinstance(module, nn.LayerNorm):
        return "PyTorch's quantized norm"
    called_norm = "norm" in cls.__name__.lower() or isinstance(module, nn.LayerNorm | nn.RMSNorm)
    if called_norm and parametrize.is_parametrized(module):
        return "parametrized, and not exactly torch.nn's"
    torch_own = cls.__module__.startswith("torch.nn.") and not isinstance(module, nn.LayerNorm | nn.RMSNorm)
    if torch_own or next(module.children(), None) is not None:
        return None
    own = {**module._parameters, **module._buffers}
    tensors = {name: value for name, value in own.items() if value is not None}
    if any(is_lazy(value) for value in tensors.values()):
        return "its parameters have no shape yet: convert it after its first call" if called_norm else None
    weight = _only(WEIGHTS, tensors)
    bias = _only(BIASES, tensors)
    if set(tensors) != {weight, bias} - {None} or (bias is not None and weight is None):
        reason = f"its tensors ({', '.join(tensors)}) are not weight and bias of a layer or RMS norm"
        return reason if called_norm else None
    if weight is None:
        return _without_weight(module) if called_norm else None
    shape = tensors[weight].shape
    if len(shape) != 1 and not called_norm:
        return None
    if not 2 <= shape.numel() <= MOST_COLS or (bias is not None and tensors[bias].shape != shape):
        return f"its weight and bias are not of one shape of 2 to {MOST_COLS} elements" if called_norm else None
    if bias is not None and tensors[bias].dtype != tensors[weight].dtype:
        return "its weight and bias are not of one type" if called_norm else None
    return _with_argument(cls, weight, bias)


def _without_weight(module: nn.Module) -> Recipe | str:
    shape = getattr(module, "normalized_shape", None)
    if shape is not None:
        sizes = (shape,) if not isinstance(shape, tuple | list) else shape
        if not sizes or any(isinstance(size, bool) or not isinstance(size, Integral) or size < 1 for size in sizes):
            return f"its normalized_shape is {shape!r}, but should be sizes"
        if not 2 <= math.prod(sizes) <= MOST_COLS:
            return f"its normalized_shape is {shape!r}, but it should have 2 to {MOST_COLS} elements"
    return _with_argument(type(module), None, None)


def _only(names: tuple[str, ...], tensors: dict[str, Tensor]) -> str | None:
    found = [name for name in names if name in tensors]
    return found[0] if len(found) == 1 else None


def _with_argument(cls: type[nn.Module], weight: str | None, bias: str | None) -> Recipe | str:
    try:
        arguments = list(inspect.signature(cls.forward).parameters.values())[1:]
    except ValueError:
        return "its forward is not written in Python"
    names = [argument.name for argument in arguments]
    if len(arguments) != 1 or arguments[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return f"its forward takes ({', '.join(names)}), not a single tensor"
    return Recipe("layer", weight, bias, names[0], None)

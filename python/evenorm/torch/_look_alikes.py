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
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ._exporters import OWN
from ._functions import has_overrides, layer_norm, one_plus, rms_norm
from ._groups import group_norm
from ._results import in_order_of
from ._tracing import Module, sizes_of

WEIGHTS = ("weight", "scale", "gamma", "gain", "g", "w", "a_2", "alpha")
BIASES = ("bias", "shift", "beta", "offset", "b", "b_2")
MOST_COLS = 2**20  # the longest rows that are tried: longer ones take too much memory
LAST, FIRST, GROUPS = -1, 1, 0  # rows are the last axes, the first axis after the batch's, or groups of channels
EACH = -1  # each channel is a group
PLAIN, ZERO_CENTRED, PER_LENGTH, UNUSED = "{}", "1 + {}", "{} / sqrt(n)", ""  # what the norm multiplies by

Types = tuple[torch.dtype, torch.dtype | None]  # the types of x and of the weight


@dataclass(frozen=True)
class Recipe:
    """A norm, and the module's attributes that hold its tensors and eps."""

    kind: str  # "layer", "rms" or "group"
    weight: str | None
    bias: str | None
    argument: str  # the name of forward's argument
    eps: float | None
    eps_name: str | None = None  # read at each call, so that a new value takes effect
    form: str = PLAIN  # of the weight
    groups: int | str = 1  # of channels, or the name of the attribute that holds their number
    least: float = 0.0  # the module's own forward computes rows of a smaller root mean square: it may have a clamp
    types: frozenset[Types] = frozenset()  # for which the module and evenorm agreed
    cols: int | None = None  # the length of rows, if an attribute determines it
    # The numbers of x's axes for which they agreed, each with the place of rows, y's memory order, and whether that is
    # known for contiguous x only.
    axes: tuple[tuple[int, int, str, bool], ...] = ()
    square: bool = True  # they also agreed when other axes are as long as the row
    unlike: tuple[int, ...] = ()  # the numbers of axes for which the module computes something else
    _axis_of: dict[int, tuple[int, str, bool]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed here and not on first use: torch.compile would see it change and compile twice.
        object.__setattr__(self, "_axis_of", {count: place for count, *place in self.axes})

    def __str__(self) -> str:
        groups = "" if self.kind != "group" else f", {'channels' if self.groups == EACH else self.groups}"
        weight = "" if self.weight is None or self.form == UNUSED else f", {self.form.format(self.weight)}"
        bias = "" if self.bias is None or self.form == UNUSED else f", {self.bias}"
        eps = self.eps if self.eps_name is None else self.eps_name
        least = f", for rows of at least {self.least:.0e}" if self.least else ""
        text = f"{self.kind}_norm(x{groups}{weight}{bias}, eps={eps}{self._axes_text()}){least}"
        return text + _of_axes(", not of", self.unlike)

    def _axes_text(self) -> str:
        first = [count for count, axis, *_ in self.axes if axis == FIRST]
        if not first:
            return ""
        mixed = any(count > 2 and axis == LAST for count, axis, *_ in self.axes)
        return f", axes=(1,){_of_axes(' of', first) if mixed else ''}"

    def tensors(self, module: nn.Module) -> tuple[Tensor | None, Tensor | None]:
        """Returns the module's weight and bias."""
        own = module._parameters  # getattr() would find them through an AttributeError, which takes longer than a row
        weight, bias = (
            None if name is None else own[name] if name in own else getattr(module, name)  # noqa: SIM401
            for name in (self.weight, self.bias)
        )
        return weight, bias

    def shape(self, module: nn.Module) -> tuple[int, ...] | None:
        """Returns the shape of one row, or the number of channels, if the module determines it."""
        if self.cols is not None:
            return (self.cols,)
        weight, _ = self.tensors(module)
        if weight is None:
            shape = getattr(module, "normalized_shape", None)
            sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
            return sizes if all(isinstance(size, Integral) for size in sizes) and math.prod(sizes) > 1 else None
        sizes = tuple(sizes_of(weight))
        if len(sizes) != 1 or sizes == (1,):
            long = tuple(size for size in sizes if size != 1)
            sizes = long if len(long) < 2 else sizes  # (C, 1, 1) broadcasts over the rows of images
        return sizes or None

    def affine(self, module: nn.Module, x: Tensor, axis: int) -> tuple[Tensor | None, Tensor | None]:
        """Returns what x's rows are multiplied by and what is added, in the shape of one row or of x's axes."""
        weight, bias = self.tensors(module)
        if weight is None or self.form == UNUSED:
            return None, None
        if self.form != PLAIN:
            # Rounding 1 + weight to bf16 or f16 would lose most of the weight's digits.
            wide = torch.promote_types(weight.dtype, torch.float32)
            weight = one_plus(weight, wide) if self.form == ZERO_CENTRED else weight.to(wide) * x.shape[axis] ** -0.5
            bias = None if bias is None else bias.to(wide)
        shape = (1,) * x.dim() if weight.numel() == 1 else self.shape(module)
        assert shape is not None
        if weight.dim() != len(shape):
            weight, bias = weight.reshape(shape), None if bias is None else bias.reshape(shape)
        return weight, bias

    def eps_of(self, module: nn.Module) -> Any:
        return self.eps if self.eps_name is None else getattr(module, self.eps_name)

    def groups_of(self, module: nn.Module, channels: int) -> int:
        groups = getattr(module, self.groups) if isinstance(self.groups, str) else self.groups
        return channels if groups == EACH else groups

    def compute(self, module: nn.Module, x: Tensor, axis: int, order: str) -> Tensor:
        """Computes the module's forward with evenorm, for what axis() returned."""
        weight, bias = self.affine(module, x, axis)
        eps = self.eps_of(module)
        if self.kind != "rms" and weight is not None and weight.requires_grad and torch.is_grad_enabled():
            x = x if x.requires_grad else x.clone()  # it is saved, and hand-written norms let it change in place
        if axis == GROUPS:
            y = group_norm(x, self.groups_of(module, x.shape[1]), weight, bias, eps)
            return _in_order(order, x, y)
        rows = x.movedim(FIRST, -1) if axis == FIRST else x
        shape = self.shape(module) or (int(rows.shape[-1]),)
        if self.kind == "rms":
            y = rms_norm(rows, shape, weight, eps) if bias is None else rms_norm(rows, shape, weight, eps, bias=bias)
        else:
            assert eps is not None  # layer norm has no default eps
            y = layer_norm(rows, shape, weight, bias, eps)
        if order == "rows":
            y = y.contiguous()
        y = y.movedim(-1, FIRST) if axis == FIRST else y
        return y if order == "rows" else _in_order(order, x, y)

    def axis(self, module: nn.Module, x: object) -> tuple[int, str] | None:
        """Returns the place of x's rows and y's memory order, or None if evenorm is not known to agree with the module
        on such an x."""
        weight, bias = self.tensors(module)
        if not isinstance(x, Tensor) or has_overrides(x, weight, bias) or x.device.type != "cpu" or x.is_nested:
            return None
        if (x.dtype, None if weight is None else weight.dtype) not in self.types:
            return None
        if bias is not None and weight is not None and bias.dtype is not weight.dtype:
            return None
        found = self._axis_of.get(x.dim())
        if found is None or not _children_are_identities(module):
            return None
        axis, order, contiguous = found
        if not self._fits(module, x, axis) or (contiguous and not x.is_contiguous()):
            return None
        return (axis, order) if not self.least or _has_values(x) else None

    def _fits(self, module: nn.Module, x: Tensor, axis: int) -> bool:
        shape = self.shape(module)
        if axis == GROUPS:
            groups = self.groups_of(module, x.shape[1])
            fits = x.shape[1] % groups == 0 and x.numel() > x.shape[0] * groups
            return fits and (shape is None or x.shape[1:2] == shape)
        if shape is None:
            return True
        if (x.shape[-len(shape) :] if axis == LAST else x.shape[1:2]) != shape:
            return False
        return self.square or sum(size == shape[0] for size in x.shape) <= 1

    def smaller_rows(self, module: nn.Module, x: Tensor, axis: int) -> Tensor:
        """Returns which rows are smaller than `least` or not finite, as a tensor that broadcasts to x."""
        axes = tuple(range(-len(self.shape(module) or (1,)), 0)) if axis == LAST else (FIRST,)
        wide = torch.promote_types(x.dtype, torch.float32)
        norms = torch.linalg.vector_norm(x.detach(), dim=axes, dtype=wide, keepdim=True)
        return (norms >= self.least * math.sqrt(math.prod(x.shape[one] for one in axes))).logical_not_()


def _has_values(x: Tensor) -> bool:
    """False for traced and transformed tensors."""
    if is_compiling() or torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0:
        return False
    return type(x) in (Tensor, nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(x)


def _of_axes(of: str, counts: Sequence[int]) -> str:
    return f"{of} {', '.join(f'{count}-D' for count in counts)} x" if counts else ""


def _children_are_identities(module: nn.Module) -> bool:
    return not module._modules or all(
        child is None or (type(child) is nn.Identity and not child._forward_hooks and not child._forward_pre_hooks)
        for child in module._modules.values()
    )


# y's memory order: x's, which PyTorch's element-wise operations keep; that of F.group_norm, which keeps channels-last;
# the order of the axes; or with the normalised axes last.
ORDERS = ("x", "format", "axes", "rows")


def _in_order(order: str, x: Tensor, y: Tensor) -> Tensor:
    if order == "axes" or x.dim() == 1 or x.is_contiguous():
        return y.contiguous()
    if order == "format":
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        keeps = x.dim() in formats and x.is_contiguous(memory_format=formats[x.dim()])
        return y.contiguous(memory_format=formats[x.dim()] if keeps else torch.contiguous_format)
    return y if x.stride() == y.stride() else in_order_of(x, y)


_made: dict[tuple[type[nn.Module], Recipe], type[nn.Module]] = {}


def stand_in(cls: type[nn.Module], recipe: Recipe) -> type[nn.Module]:
    """Returns the subclass of cls that computes recipe where it applies, and cls's forward elsewhere. It is cached."""
    if (cls, recipe) not in _made:
        _made.setdefault((cls, recipe), _make(cls, recipe))
    return _made[cls, recipe]


def _make(cls: type[nn.Module], recipe: Recipe) -> type[nn.Module]:
    old_forward: Callable[..., Any] = cls.forward

    defaults = {argument.name: argument.default for argument in _arguments(cls)}

    @functools.wraps(old_forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            x = args[0]
        else:  # further arguments must have their defaults
            given = {**dict(zip(defaults, args, strict=False)), **kwargs}
            x = given.pop(recipe.argument, None) if len(given) == len(args) + len(kwargs) else None
            x = x if all(value is defaults.get(name, given) for name, value in given.items()) else None
        found = recipe.axis(self, x)
        if found is None:
            return old_forward(self, *args, **kwargs)
        assert isinstance(x, Tensor)
        y = recipe.compute(self, x, *found)
        if recipe.least:
            smaller = recipe.smaller_rows(self, x, found[0])
            if smaller.any():  # the bits of the other rows do not depend on them
                y = torch.where(smaller, old_forward(self, *args, **kwargs), y)
        return y

    def reduce(self: nn.Module, protocol: Any) -> Any:
        # The class has no importable name, so it is made again from cls and recipe.
        how = cls.__reduce_ex__(self, protocol)
        if isinstance(how, str):
            return how
        function, arguments, *rest = how
        if function is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return (function, arguments, *rest)
        return (restore, (cls, recipe), *rest)

    def extra_repr(self: nn.Module) -> str:
        return ", ".join(filter(None, (cls.extra_repr(self), "evenorm=True")))

    # Quantisers and other tools know a norm by the name of its class, so the class keeps it.
    names = ("__module__", "__doc__", "__firstlineno__")  # the last is what inspect.getsource reads from Python 3.13 on
    body: dict[str, Any] = {
        **{name: vars(cls)[name] for name in names if name in vars(cls)},
        "__reduce_ex__": reduce,
        "__qualname__": cls.__qualname__,
        "extra_repr": extra_repr,
        "_is_quantizable": True,  # static quantization knows the operations of cls's forward
        "evenorm_recipe": recipe,
    }
    base = next((base for base in OWN if issubclass(cls, base)), None)
    if base is not None and _reaches(cls, base):
        return type(cls.__name__, (cls, OWN[base]), body)
    return type(cls.__name__, (cls, Module), {"forward": forward, **body})


def _reaches(cls: type[nn.Module], base: type[nn.Module]) -> bool:
    """True if cls's forward is that of base or calls it by super(). It then reaches evenorm's class in the place of base,
    and the layouts and conversions around it stay, without a recipe's checks at each call."""
    own = [vars(one)["forward"] for one in cls.__mro__[: cls.__mro__.index(base)] if "forward" in vars(one)]
    return all({"super", "forward"} <= {*getattr(getattr(one, "__code__", None), "co_names", ())} for one in own)


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
    called_norm = "norm" in cls.__name__.lower() or isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm)
    if called_norm and parametrize.is_parametrized(module):
        return "parametrized, and not exactly torch.nn's"
    torch_own = cls.__module__.startswith("torch.nn.") and not isinstance(module, nn.LayerNorm | nn.RMSNorm)
    if torch_own or not _children_are_identities(module):
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
    least = 1 if called_norm else 2
    if not least <= shape.numel() <= MOST_COLS or (bias is not None and tensors[bias].shape != shape):
        return f"its weight and bias are not of one shape of 1 to {MOST_COLS} elements" if called_norm else None
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


def _arguments(cls: type[nn.Module]) -> list[inspect.Parameter]:
    """The arguments of forward besides self."""
    return list(inspect.signature(cls.forward).parameters.values())[1:]


def _with_argument(cls: type[nn.Module], weight: str | None, bias: str | None) -> Recipe | str:
    if cls.forward is nn.Module.forward:
        return "its class has no forward"
    try:
        first, *others = _arguments(cls)
    except (TypeError, ValueError):
        return "its forward is not written in Python, or takes no tensor"
    of_many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one for one in others if one.default is inspect.Parameter.empty and one.kind not in of_many]
    if needed or first.kind in (*of_many, inspect.Parameter.KEYWORD_ONLY):
        names = [argument.name for argument in (first, *others)]
        return f"its forward takes ({', '.join(names)}), not a single tensor"
    return Recipe("layer", weight, bias, first.name, None)

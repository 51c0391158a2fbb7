"""convert(): replaces a model's norms by evenorm's, in place, and reports what it replaced and left.

A module is replaced by changing the class of the object. So its parameters, buffers, hooks, attributes and training
flag stay, and all references to it stay valid. _look_alikes.py and _trial.py decide whether a module that is not
torch.nn's own is a norm.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MethodType
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.utils import parametrize

from evenorm._tables import Left, Replaced, grouped, report

from . import _look_alikes, _trial
from ._exporters import OWN, register_counted

EVERY_MODULES = frozenset(vars(nn.Module())) | {"forward"}  # the attributes that every module has


@dataclass(frozen=True, repr=False)
class Conversion:
    """What convert() or revert() did. Its repr is a table; modules whose names differ only in numbers share a line."""

    model: nn.Module
    replaced: tuple[Replaced, ...]
    left: tuple[Left, ...]
    warnings: tuple[str, ...]
    function: str = "convert"

    def __repr__(self) -> str:
        lines = report(f"evenorm.torch.{self.function}", self.replaced, self.left)
        return "\n".join([*lines, *(f"  warning   {text}" for text in self.warnings)])

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self.function}() returns a report, not the model; the model was {self.function}ed in place")


def convert(model: nn.Module, *, look_alikes: bool = True) -> Conversion:
    """Replace a model's norms by evenorm's, in place; report what was replaced, what was left, and why.

    Every module that is exactly torch.nn.LayerNorm, RMSNorm, GroupNorm or InstanceNorm1d, 2d or 3d becomes the class of
    that name in evenorm.torch. It stays the same object, with the same Parameters, buffers, hooks and attributes.

    Other norms (subclasses, Hugging Face's RMS norms, hand-written ones) are replaced only if their values and
    gradients agree with evenorm's in a trial on random rows. Their own forward still runs on x of other types, devices,
    numbers of axes or lengths of rows. docs/python.md has the details.

    Args:
        model: any module, which may itself be a norm.
        look_alikes: if False, leave every module that is not exactly torch.nn's.

    Returns:
        A Conversion with model (the same object), replaced, left and warnings. Its repr is a table.

    Raises:
        TypeError: model is not a torch.nn.Module, or look_alikes is not a bool.

    Warns:
        UserWarning: the model has a converted torch.nn.TransformerEncoderLayer that PyTorch's inference fast path may
        run, which computes the norms itself.

    Example:
        >>> import torch, evenorm.torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8))
        >>> evenorm.torch.convert(model)
        evenorm.torch.convert: 1 replaced, 0 left
          replaced  1  torch.nn.LayerNorm -> evenorm.torch.LayerNorm
        >>> isinstance(model[1], torch.nn.LayerNorm)
        True
    """
    if not isinstance(look_alikes, bool):
        raise TypeError(f"look_alikes is a {type(look_alikes).__name__}, but must be a bool")
    settled: Settled | None = {} if look_alikes else None
    observed: set[nn.Module] = set()

    def choose(module: nn.Module) -> type[nn.Module] | str | None:
        observed.update(module.modules() if _is_observed(module) else ())
        result = swap(module, settled)
        if module in observed and isinstance(result, type):
            return "prepared for static quantization, which will put PyTorch's quantized norm in its place"
        if isinstance(result, type) and _has_hooks_by_class(module):
            return "has hooks of opacus, which know it by its class"
        return result

    register_counted()  # again, since counters may have been loaded since
    replaced, left = swap_classes(model, choose)
    notes = tuple(bypassed(model, {one.name for one in replaced}))
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return Conversion(model, replaced, left, notes)


def swap_classes(
    model: nn.Module, choose: Callable[[nn.Module], type[nn.Module] | str | None]
) -> tuple[tuple[Replaced, ...], tuple[Left, ...]]:
    """Gives each module the class that choose() returns, and collects the reasons that it returns instead."""
    check_model(model)
    replaced, left = [], []
    for name, module in model.named_modules():
        old = class_name(module)
        result = choose(module)
        if isinstance(result, type):
            object.__setattr__(module, "__class__", result)  # the module's own __setattr__ may refuse it
            vars(module).pop("forward", None)  # that of the old class
            replaced.append(Replaced(name, old, class_name(module)))
        elif result is not None:
            left.append(Left(name, old, result))
    return tuple(replaced), tuple(left)


def check_model(model: Any) -> None:
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__}, but must be a torch.nn.Module: an instance of it")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, but must be a torch.nn.Module")


def is_evenorms(module: nn.Module) -> bool:
    return isinstance(module, tuple(OWN.values())) or hasattr(type(module), "evenorm_recipe")


def swap(module: nn.Module, settled: "Settled | None") -> type[nn.Module] | str | None:
    """Returns the class that the module should get, or why it keeps its own, or None if it is not a norm."""
    cls = type(module)
    if is_evenorms(module):
        return "already evenorm's"
    if isinstance(module, torch.jit.ScriptModule):
        names = {own.__name__ for own in OWN}
        return "compiled by TorchScript" if getattr(module, "original_name", "") in names else None
    base = parametrize.type_before_parametrizations(module)
    if base not in OWN:
        if settled is not None:
            return _swap_look_alike(module, settled)
        return "not exactly torch.nn's, and look_alikes is False" if _look_alikes.candidate(module) else None
    if has_own_forward(module):
        return "its forward was replaced on the object itself"
    if getattr(module, "track_running_stats", False):
        return "has running statistics"
    return OWN[base] if base is cls else parametrized_as(cls, OWN[base])


def has_own_forward(module: nn.Module) -> bool:
    """True if the object has another forward than its class's. accelerate and compressed-tensors leave the class's on
    the object when they remove theirs."""
    bound = MethodType(type(module).forward, module)
    return bool(vars(module).get("forward", bound) != bound)


def _is_observed(module: nn.Module) -> bool:
    """True if torch.ao.quantization's prepare_fx made the module. Its convert_fx looks modules up by exact class."""
    return isinstance(module, torch.fx.GraphModule) and "_observed_graph_module_attrs" in module.meta


def _has_hooks_by_class(module: nn.Module) -> bool:
    """True if hooks look up the module's class, as those of opacus' GradSampleModule do."""
    hooks = (*module._forward_hooks.values(), *module._backward_hooks.values())
    homes = (getattr(getattr(hook, "func", hook), "__module__", None) or "" for hook in hooks)
    return any(home.split(".")[0] == "opacus" for home in homes)


def parametrized_as(cls: type[nn.Module], base: type[nn.Module]) -> type[nn.Module]:
    """The class of a parametrized module, derived from `base` instead of torch.nn's class.

    PyTorch gives each parametrized module its own class, with properties for its tensors. When the last parametrization
    is removed, the module gets the base of that class back.
    """
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__", "__doc__")}
    return type(cls.__name__, (base,), body)


Settled = dict[Any, _look_alikes.Recipe | str]  # by class, shapes and attributes: equal modules are tried once


def _swap_look_alike(module: nn.Module, settled: Settled) -> type[nn.Module] | str | None:
    found = _look_alikes.candidate(module)
    if found is None or isinstance(found, str):
        return found
    if has_own_forward(module) or type(module).__call__ is not nn.Module.__call__:
        return "its forward or __call__ is not that of its class"
    key = _key(module)
    if key not in settled:
        settled[key] = _trial.settle(module, found)
    recipe = settled[key]
    if isinstance(recipe, str):
        return recipe
    try:
        return _look_alikes.stand_in(type(module), recipe)
    except Exception as error:  # raised by the metaclass or by __init_subclass__
        return f"its class cannot have a subclass: {type(error).__name__}: {error}"[:200]


def _key(module: nn.Module) -> Any:
    tensors = [
        (name, tuple(value.shape), value.dtype)
        for name, value in (*module._parameters.items(), *module._buffers.items())
        if value is not None
    ]
    plain = {
        name: value if isinstance(value, int | float | str | tuple | torch.dtype | None) else id(value)
        for name, value in vars(module).items()
        if name not in EVERY_MODULES
    }
    return type(module), tuple(tensors), repr(sorted(plain.items(), key=lambda item: item[0]))


def bypassed(model: nn.Module, replaced: set[str]) -> Iterable[str]:
    """Warns if PyTorch may run whole encoder layers without calling their norms."""
    layers = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.TransformerEncoderLayer)
        and replaced & {f"{name}.{norm}".lstrip(".") for norm in ("norm1", "norm2")}
        and _has_fast_path(module)
    ]
    if layers and torch.backends.mha.get_fastpath_enabled():
        which = ", ".join(line for line, _ in grouped((name, "") for name in layers))
        yield (
            f"{which}: in evaluation without gradients, torch.nn.TransformerEncoderLayer computes its norms in one "
            "fused operator and does not call evenorm's; torch.backends.mha.set_fastpath_enabled(False) turns that off"
        )


def _has_fast_path(layer: nn.TransformerEncoderLayer) -> bool:
    """True if some input may take the fast path. Checks those of its conditions that do not depend on the call."""
    attention = layer.self_attn
    return (
        type(layer).forward is nn.TransformerEncoderLayer.forward
        and attention.batch_first
        and attention.in_proj_bias is not None
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and bool(layer.activation_relu_or_gelu)
        and layer.norm1.eps == layer.norm2.eps
    )


def class_name(module: nn.Module) -> str:
    cls = parametrize.type_before_parametrizations(module)
    recipe = vars(cls).get("evenorm_recipe")
    if recipe is not None or cls in OWN.values():
        return f"evenorm.torch.{recipe or cls.__name__}"
    return f"torch.nn.{cls.__name__}" if cls in OWN else cls.__name__

"""revert(): gives evenorm's modules PyTorch's classes back, in place, for tools that do not know evenorm's operators."""

from collections.abc import Sequence

from torch import nn
from torch.nn.utils import parametrize

from ._convert import OWN, Conversion, checked, parametrized_as, swap_classes

PYTORCHS = {own: old for old, own in OWN.items()}


def revert(model: nn.Module) -> Conversion:
    """Undo `convert`, and replace the norms of evenorm.torch in a model by torch.nn's, in place.

    Modules of evenorm.torch, converted or constructed, get torch.nn's class of the same name. A converted look-alike gets
    its own class back. Each stays the same object, with the same Parameters, buffers, hooks and attributes. Calls of
    evenorm's functions stay.

    Args:
        model: any module, which may itself be a norm.

    Returns:
        A Conversion as of `convert`. What torch.nn does not have is left: other axes, RMS norm with a bias, recurrent
        layers with norms, sharded norms and other subclasses.

    Raises:
        TypeError: model is not a torch.nn.Module.

    >>> import torch, evenorm.torch
    >>> model = torch.nn.Sequential(torch.nn.LayerNorm(8))
    >>> report = evenorm.torch.convert(model)
    >>> evenorm.torch.revert(model)
    evenorm.torch.revert: 1 replaced, 0 left
      replaced  0  evenorm.torch.LayerNorm -> torch.nn.LayerNorm
    """
    replaced, left = swap_classes(checked(model), _original)
    return Conversion(model, replaced, left, (), "revert")


def _original(module: nn.Module) -> type[nn.Module] | str | None:
    """Returns the class that the module should get, or why it keeps its own, or None if it is not evenorm's."""
    cls, own = type(module), parametrize.type_before_parametrizations(module)
    recipe = "evenorm_recipe" in vars(own)
    if own not in PYTORCHS and not recipe:
        known = hasattr(own, "evenorm_recipe") or any(base.__module__.startswith("evenorm.") for base in own.__mro__)
        return "torch.nn has no such module" if known else None
    if "forward" in vars(module):
        return "its forward was replaced on the object itself"
    if not recipe and not _normalises_the_last_axes(module):
        return f"torch.nn's has no dim={module.dim}"
    if getattr(module, "_has_bias", False) and module.bias is not None:
        return "torch.nn's has no bias"
    original = own.__bases__[-1] if recipe else PYTORCHS[own]
    return original if own is cls else parametrized_as(cls, original)


def _normalises_the_last_axes(module: nn.Module) -> bool:
    dim = getattr(module, "dim", None)
    axes = tuple(dim) if isinstance(dim, Sequence) else (dim,)
    return dim is None or axes == tuple(range(-len(axes), 0))

"""revert(): gives evenorm's modules PyTorch's classes back, for tools that do not know evenorm's operators."""

from torch import nn
from torch.nn.utils import parametrize

from ._convert import Conversion, has_own_forward, parametrized_as, swap_classes
from ._exporters import OWN

PYTORCHS = {own: old for old, own in OWN.items()}


def revert(model: nn.Module) -> Conversion:
    """Give a model's modules of evenorm.torch PyTorch's classes back, in place, whether converted or constructed.

    A converted look-alike gets its own class. All modules stay the same objects, with the same Parameters, buffers, hooks
    and attributes. What torch.nn lacks is left: other axes, RMS norm with a bias, zero-centred weights, recurrent layers,
    sharded norms and subclasses of evenorm's modules. Calls of evenorm's functions stay, too.

    Returns:
        A Conversion, as `convert` does.

    >>> import torch, evenorm.torch
    >>> evenorm.torch.revert(torch.nn.Sequential(evenorm.torch.LayerNorm(8)))
    evenorm.torch.revert: 1 replaced, 0 left
      replaced  0  evenorm.torch.LayerNorm -> torch.nn.LayerNorm
    """
    replaced, left = swap_classes(model, _original)
    return Conversion(model, replaced, left, (), "revert")


def _original(module: nn.Module) -> type[nn.Module] | str | None:
    """Returns the class that the module should get, or why it keeps its own, or None if it is not evenorm's."""
    own = parametrize.type_before_parametrizations(module)
    recipe = "evenorm_recipe" in vars(own)
    if not recipe and own not in PYTORCHS:
        evenorms = any(base.__module__.startswith("evenorm.") for base in own.__mro__)
        return "torch.nn has no such module" if evenorms else None
    if has_own_forward(module):
        return "its forward was replaced on the object itself"
    if not recipe and getattr(module, "_dim", None) not in (None, -1, (-1,)):
        return f"torch.nn's has no dim={module._dim}"
    if not recipe and getattr(module, "_has_bias", False) and module.bias is not None:
        return "torch.nn's has no bias"
    if not recipe and getattr(module, "_zero_centered", False):
        return "torch.nn's is not zero-centred"
    old = own.__bases__[0] if recipe else PYTORCHS[own]
    return old if own is type(module) else parametrized_as(type(module), old)

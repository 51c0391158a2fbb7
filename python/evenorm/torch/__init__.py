"""evenorm for PyTorch: modules, functions, `convert`, and recurrent layers with layer norm.

import evenorm.torch
norm = evenorm.torch.LayerNorm(768)          # instead of torch.nn.LayerNorm(768)
evenorm.torch.convert(model)                 # or: replace every norm of a model; revert(model) undoes it
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("evenorm.torch needs PyTorch, which is not installed: pip install 'torch>=2.10'") from error

from evenorm._inspection import Inspection

from . import _exporters as _exporters
from . import _vmap as _vmap
from ._convert import Conversion, convert
from ._functions import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from ._groups import GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, ada_layer_norm, group_norm
from ._inspect import inspect
from ._modules import LayerNorm, RMSNorm
from ._operators import info
from ._recurrent import LayerNormGRU, LayerNormGRUCell, LayerNormLSTM, LayerNormLSTMCell
from ._revert import revert

__all__ = [
    "Conversion",
    "GroupNorm",
    "Inspection",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "RMSNorm",
    "ada_layer_norm",
    "add_layer_norm",
    "add_rms_norm",
    "convert",
    "group_norm",
    "info",
    "inspect",
    "layer_norm",
    "revert",
    "rms_norm",
]

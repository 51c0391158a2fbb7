"""evenorm for PyTorch: modules, functions, `convert`, and normalised recurrent layers.

    import evenorm.torch
    norm = evenorm.torch.LayerNorm(768)          # instead of torch.nn.LayerNorm(768)
    evenorm.torch.convert(model)                 # or: swap every norm of a model
"""

from . import _vmap as _vmap
from ._functions import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from ._modules import LayerNorm, RMSNorm
from ._operators import info

__all__ = ["LayerNorm", "RMSNorm", "add_layer_norm", "add_rms_norm", "info", "layer_norm", "rms_norm"]

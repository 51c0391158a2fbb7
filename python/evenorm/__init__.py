"""Layer norm and RMS norm of NumPy arrays on the CPU: accurate, fast, and with reproducible bits.

The modules and functions for PyTorch and JAX are in `evenorm.torch` and `evenorm.jax`, which are imported separately.
"""

from evenorm._check import Check, check
from evenorm._fused import add_layer_norm, add_rms_norm, layer_norm_int8, rms_norm_int8
from evenorm._info import numerics_revision, target, targets, version
from evenorm._norms import (
    get_num_threads,
    group_norm,
    instance_norm,
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
    set_num_threads,
)

__version__ = version()

__all__ = [
    "Check",
    "__version__",
    "add_layer_norm",
    "add_rms_norm",
    "check",
    "get_num_threads",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_int8",
    "numerics_revision",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_int8",
    "set_num_threads",
    "target",
    "targets",
    "version",
]

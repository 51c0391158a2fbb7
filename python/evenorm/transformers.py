"""evenorm's RMS norm for models of Hugging Face transformers, through its interface for kernels.

import evenorm.transformers
evenorm.transformers.register()
model.set_use_kernels(True)                  # replaces the forward of every RMS norm of a model on the CPU

`evenorm.torch.convert(model)` gives the same bits, needs no further package, and handles other norms, too.
"""

from __future__ import annotations

import importlib.metadata

import transformers
from torch import Tensor, nn
from transformers.utils import import_utils

from evenorm.torch._look_alikes import LAST, ZERO_CENTRED, Recipe

__all__ = ["register"]


class _Norm(nn.Module):
    """What a norm's forward becomes. kernels allows no other members."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return _RECIPE.compute(self, hidden_states, LAST, "x")


class _ZeroCentredNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _ZERO_CENTRED.compute(self, x, LAST, "x")


_RECIPE = Recipe("rms", "weight", None, "hidden_states", None, "variance_epsilon")
_ZERO_CENTRED = Recipe("rms", "weight", None, "x", None, "eps", form=ZERO_CENTRED)


class _Layer:
    """A source of kernels: kernelize() calls load()."""

    def __init__(self, layer_name: str, cls: type[nn.Module]) -> None:
        self.layer_name, self._cls = layer_name, cls

    def load(self) -> type[nn.Module]:
        return self._cls

    def __str__(self) -> str:
        return f"evenorm's {self.layer_name}"


_LAYERS = (_Layer("RMSNorm", _Norm), _Layer("RMSNormZeroCentered", _ZeroCentredNorm))


def register() -> None:
    """Registers RMS norms on the CPU, for inference and training, compiled or not. Then call model.set_use_kernels(True).

    Models read the registered kernels once: call set_use_kernels afterwards, and import the model's class after
    `kernels` is installed. Norms with a gate stay as they are.

    Raises:
        ImportError: `kernels` is not installed, or its version is not one that transformers accepts.
    """
    if not import_utils.is_kernels_available():
        raise ImportError(
            f"transformers {transformers.__version__} needs kernels {_bounds()}, but this is {_installed()}"
        )
    from kernels import register_kernel_mapping

    register_kernel_mapping({layer.layer_name: {"cpu": layer} for layer in _LAYERS})


def _bounds() -> str:
    least, end = (getattr(import_utils, f"KERNELS_{name}_VERSION", "?") for name in ("MIN", "MAX"))
    return f"from {least} to below {end}"


def _installed() -> str:
    try:
        return f"kernels {importlib.metadata.version('kernels')}"
    except importlib.metadata.PackageNotFoundError:
        return "an environment without it"

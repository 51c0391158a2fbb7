"""The operators `torch.ops.evenorm.*`: loads them and registers their fake implementations.

They are registered in C++ (`_ops_2_13` for PyTorch 2.13, and so on), or in Python (`_fallback`) for a version of PyTorch
that this build of evenorm has no module for.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from ._results import contiguous_like, gradients, norm_like

Sizes = Sequence[int]


def built_for() -> list[str]:
    """Returns the versions of PyTorch that this build has C++ operators for, such as ["2.13", "2.14"]."""
    names = [re.fullmatch(r"_ops_(\d+)_(\d+)\..*so", file.name) for file in pathlib.Path(__file__).parent.iterdir()]
    return [f"{major}.{minor}" for major, minor in sorted((int(n[1]), int(n[2])) for n in names if n)]


def _load_native() -> tuple[Any, str]:
    """Returns the module of C++ operators, or None and the reason why it is not used."""
    wanted = os.environ.get("EVENORM_TORCH_OPERATORS", "")
    if wanted not in ("", "c++", "python"):
        raise ImportError(f"EVENORM_TORCH_OPERATORS is {wanted!r}, but it should be 'c++' or 'python'")
    version = ".".join(torch.__version__.split(".")[:2])
    if tuple(map(int, version.split("."))) < (2, 10):
        raise ImportError(f"evenorm.torch needs PyTorch 2.10 or later, but this is PyTorch {torch.__version__}")
    if wanted == "python":
        return None, "EVENORM_TORCH_OPERATORS is 'python'"
    try:
        return importlib.import_module(f"._ops_{version.replace('.', '_')}", __package__), ""
    except ModuleNotFoundError:
        built = ", ".join(built_for()) or "no PyTorch"
        return None, f"this is PyTorch {torch.__version__}, and this build has C++ operators for {built}"
    except ImportError as error:
        return None, f"the C++ operators for PyTorch {version} could not be loaded: {error}"


native, why_not = _load_native()
# The entry points of eager mode.
eager = importlib.import_module("._fallback", __package__) if native is None else native

operators = torch.ops.evenorm


# --- fake tensors and the meta device: only shapes and types


def _register_lowerings() -> None:
    """Registers how Inductor calls the norms if it is loaded. Inductor traces a graph, and so calls the functions below,
    before it lowers it. In a PyTorch with other private interfaces, it calls the operators."""
    if "torch._inductor.lowering" in sys.modules:
        with suppress(ImportError, AttributeError):
            importlib.import_module("._inductor", __package__)


def _check_norm(x: torch.Tensor, normalized_shape: Sizes) -> None:
    first = x.dim() - len(normalized_shape)
    if not normalized_shape or first < 0 or list(x.shape[first:]) != list(normalized_shape):
        raise ValueError(
            f"x has shape ({', '.join(map(str, x.shape))}), but its trailing axes should be normalized_shape "
            f"({', '.join(map(str, normalized_shape))})"
        )


@torch.library.register_fake("evenorm::layer_norm")
def _(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    _register_lowerings()
    _check_norm(x, normalized_shape)
    return norm_like(False, x, normalized_shape, weight)


@torch.library.register_fake("evenorm::rms_norm")
def _(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    _register_lowerings()
    _check_norm(x, normalized_shape)
    return norm_like(True, x, normalized_shape, weight)


@torch.library.register_fake("evenorm::add_layer_norm")
@torch.library.register_fake("evenorm::add_rms_norm")
def _(x, residual, normalized_shape, *parameters, **options):
    _register_lowerings()
    _check_norm(x, normalized_shape)
    return contiguous_like(x), contiguous_like(x)


@torch.library.register_fake("evenorm::layer_norm_backward")
@torch.library.register_fake("evenorm::rms_norm_backward")
def _(dy, x, normalized_shape, weight, bias_dtype, eps, output_mask, dsum=None):
    return gradients(x, normalized_shape, weight, bias_dtype, output_mask)


def info() -> dict[str, str]:
    """Reports which operators are in use: `operators` is "C++" or "Python" (slower); `reason` says why not C++.

    >>> sorted(info())
    ['operators', 'reason', 'torch']
    """
    return {"operators": "C++" if native else "Python", "reason": why_not, "torch": torch.__version__}

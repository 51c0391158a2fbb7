"""The operators `torch.ops.evenorm.*`: loads them and registers their fake implementations.

They are registered in C++ (`_extension`), or in Python (`_fallback`) if the extension was built for another PyTorch.
"""

from __future__ import annotations

import importlib
import importlib.resources
import os
from collections.abc import Sequence
from typing import Any

import torch

from ._results import contiguous_like, gradients, rms_norm_like

Sizes = Sequence[int]


def _load_extension() -> tuple[Any, str]:
    """Returns the extension, or None and the reason why it is not used."""
    wanted = os.environ.get("EVENORM_TORCH_OPERATORS", "")
    if wanted not in ("", "c++", "python"):
        raise ImportError(f"EVENORM_TORCH_OPERATORS is {wanted!r}, but it should be 'c++' or 'python'")
    if wanted == "python":
        return None, "EVENORM_TORCH_OPERATORS is 'python'"
    built_for = importlib.resources.files(__package__) / "built_for"
    if not built_for.is_file():
        return None, "this build of evenorm has no extension for PyTorch"
    version = built_for.read_text().strip()
    if version.split(".")[:2] != torch.__version__.split(".")[:2]:
        return None, f"the extension was built for PyTorch {version}, but this is PyTorch {torch.__version__}"
    try:
        return importlib.import_module("._extension", __package__), ""
    except ImportError as error:
        return None, f"the extension could not be loaded: {error}"


extension, why_not = _load_extension()
if extension is None:
    importlib.import_module("._fallback", __package__)

operators = torch.ops.evenorm


# --- fake tensors and the meta device: only shapes and types


def _check_norm(x: torch.Tensor, normalized_shape: Sizes) -> None:
    first = x.dim() - len(normalized_shape)
    if not normalized_shape or first < 0 or list(x.shape[first:]) != list(normalized_shape):
        raise ValueError(
            f"x has shape ({', '.join(map(str, x.shape))}), but its trailing axes should be normalized_shape "
            f"({', '.join(map(str, normalized_shape))})"
        )


@torch.library.register_fake("evenorm::layer_norm")
def _(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    _check_norm(x, normalized_shape)
    return contiguous_like(x)


@torch.library.register_fake("evenorm::rms_norm")
def _(x, normalized_shape, weight=None, eps=1e-5):
    _check_norm(x, normalized_shape)
    return rms_norm_like(x, normalized_shape, weight)


@torch.library.register_fake("evenorm::add_layer_norm")
@torch.library.register_fake("evenorm::add_rms_norm")
def _(x, residual, normalized_shape, *parameters, **options):
    _check_norm(x, normalized_shape)
    return contiguous_like(x), contiguous_like(x)


@torch.library.register_fake("evenorm::layer_norm_backward")
def _(dy, x, normalized_shape, weight, bias_dtype, eps, output_mask, dsum=None):
    return gradients(x, normalized_shape, weight, bias_dtype, output_mask)


@torch.library.register_fake("evenorm::rms_norm_backward")
def _(dy, x, normalized_shape, weight, eps, output_mask, dsum=None):
    return gradients(x, normalized_shape, weight, None, output_mask)


def info() -> dict[str, str]:
    """Reports which operators are in use: `operators` is "C++" or "Python" (slower); `reason` says why not C++.

    >>> sorted(info())
    ['operators', 'reason', 'torch']
    """
    return {"operators": "C++" if extension else "Python", "reason": why_not, "torch": torch.__version__}

"""evenorm's norms in ONNX files and in ONNX Runtime: operators, and a converter for the norms of existing files."""

from typing import TYPE_CHECKING, Any

from ._session import library, session

if TYPE_CHECKING:
    from ._convert import Conversion, convert
    from ._inspect import inspect

__all__ = ["Conversion", "convert", "inspect", "library", "session"]


def __getattr__(name: str) -> Any:
    """Imports what needs onnx and onnx-ir. A program that only runs converted files does without them."""
    if name not in __all__:
        raise AttributeError(f"evenorm.onnx has no {name}")
    try:
        from . import _convert, _inspect
    except ImportError as error:
        raise ImportError(f"evenorm.onnx.{name} needs onnx and onnx-ir: pip install onnx onnx-ir") from error
    return getattr(_inspect if name == "inspect" else _convert, name)

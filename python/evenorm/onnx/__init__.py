"""evenorm's norms in ONNX files and in ONNX Runtime: operators, and a converter for the norms of existing files."""

from ._convert import Conversion, convert
from ._inspect import inspect
from ._session import library, session

__all__ = ["Conversion", "convert", "inspect", "library", "session"]

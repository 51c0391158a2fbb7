"""The operators' library, and sessions of ONNX Runtime that use it."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any


def library() -> str:
    """Return the path of evenorm's operators for ONNX Runtime 1.17 or later on a CPU.

    Example:
        >>> import onnxruntime, evenorm.onnx
        >>> options = onnxruntime.SessionOptions()
        >>> options.register_custom_ops_library(evenorm.onnx.library())
    """
    path = Path(__file__).parent.parent / "lib" / "libevenorm_onnxruntime.so"
    if not path.exists():
        raise RuntimeError(f"{path} is missing: this evenorm was built without its operators for ONNX Runtime")
    return str(path)


def session(
    model: str | PathLike[str] | bytes | Any,
    options: Any = None,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    **others: Any,
) -> Any:
    """Open a model in ONNX Runtime with evenorm's operators.

    Args:
        model: a path, the bytes of a model, or an onnx.ModelProto.
        options: an onnxruntime.SessionOptions, to which the operators are added; None: the default ones.
        providers, **others: what onnxruntime.InferenceSession takes.

    Returns:
        An onnxruntime.InferenceSession.

    Raises:
        RuntimeError: ONNX Runtime is older than 1.17.

    Example:
        >>> import evenorm.onnx
        >>> outputs = evenorm.onnx.session("converted.onnx").run(None, {"x": x})  # doctest: +SKIP
    """
    import onnxruntime

    options = onnxruntime.SessionOptions() if options is None else options
    options.register_custom_ops_library(library())
    return opened(model, options, providers, **others)


def opened(model: Any, options: Any, providers: Sequence[Any] = ("CPUExecutionProvider",), **others: Any) -> Any:
    """A session with these options, which may have evenorm's operators."""
    import onnxruntime

    source = model.SerializeToString() if hasattr(model, "SerializeToString") else model
    return onnxruntime.InferenceSession(source, options, providers=list(providers), **others)

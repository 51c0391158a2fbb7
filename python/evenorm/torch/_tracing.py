"""How the package behaves while torch.compile, torch.fx or torch.jit trace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.fx import Proxy

Function = TypeVar("Function", bound=Callable[..., object])


def run_while_tracing(function: Function) -> Function:
    """Decorator: Dynamo calls the function while it traces, and treats the result as a constant of the graph.

    The same as torch.compiler.assume_constant_result, which imports Dynamo: that takes as long as importing PyTorch.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_recorded(*given: object, zero_centered: bool = False) -> bool:
    """True if torch.fx traces one of them and evenorm's functions should be in the graph. Quantizers know PyTorch's."""
    return any(isinstance(t, Proxy) and (zero_centered or not _is_quantizers(t)) for t in given)


def _is_quantizers(x: Proxy) -> bool:
    return type(x.tracer).__module__.startswith("torch.ao.")


def record(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Records a call of a function of this package, one of whose arguments torch.fx traces."""
    return Proxy.__torch_function__(function, (Proxy,), arguments, options)


def sizes_of(x: Tensor) -> Sequence[int]:
    """x's shape. torch.jit.trace would record the sizes as tensors."""
    state = None if is_compiling() else torch._C._get_tracing_state()
    if state is None:
        return x.shape
    set_state: Any = torch._C._set_tracing_state  # type: ignore[attr-defined]
    set_state(None)
    try:
        return x.shape
    finally:
        set_state(state)


_OF_TORCH_NN = torch.nn.Identity()


class Module(torch.nn.Module):
    """What evenorm's modules share."""

    _is_quantizable = False  # True if static quantization knows what forward() calls for it

    def _call_impl(self, *arguments: Any, **options: Any) -> Any:
        # torch.fx records calls of torch.nn's modules, which it knows by their names, instead of tracing them. So does
        # this for evenorm's, if the tracer does. It is not in forward(), because the hooks around it belong to the
        # recorded call.
        x = arguments[0] if arguments else next(iter(options.values()), None)
        is_quantizable = self._is_quantizable and not getattr(self, "_zero_centered", False)
        if isinstance(x, Proxy) and not (is_quantizable and _is_quantizers(x)):
            tracer: Any = x.tracer
            path = tracer.path_of_module(self)
            if path and tracer.is_leaf_module(_OF_TORCH_NN, path):  # the model itself has no path
                return tracer.create_proxy("call_module", path, arguments, options)
        return super()._call_impl(*arguments, **options)  # type: ignore[no-untyped-call]

    def __prepare_scriptable__(self) -> NoReturn:
        """torch.jit.script calls this first. Otherwise it would fail on types that TorchScript does not know, with an
        unclear message."""
        raise TypeError(
            f"torch.jit.script cannot compile evenorm's modules ({type(self).__name__}): use "
            "torch.compile, torch.export or torch.jit.trace, or call evenorm.torch.revert(model) before"
        )

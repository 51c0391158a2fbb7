"""How the package behaves while torch.compile traces it."""

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def run_while_tracing(function: Function) -> Function:
    """Decorator: Dynamo calls the function while it traces, and treats the result as a constant of the graph.

    The same as torch.compiler.assume_constant_result, which imports Dynamo: that takes as long as importing PyTorch.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function

"""How Inductor calls the norms: through the entry points of eager mode, not through PyTorch's dispatcher, which takes
longer.

Inductor is large, so only a process that has loaded it imports this module (see _operators.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._inductor import ir, lowering
from torch._inductor.virtualized import V
from torch._library.utils import get_layout_constraint_tag
from torch.utils._pytree import tree_map

from ._operators import eager, operators


class Call(ir.FallbackKernel):
    """A norm in Inductor's graph. Generated C++ calls the operator, and generated Python the functions below."""

    def codegen(self, wrapper: Any) -> None:
        if not V.graph.cpp_wrapper:
            wrapper.add_import_once(f"import {__name__}")
            self.python_kernel_name = f"{__name__}.{self.op_overload._opname}"
        super().codegen(wrapper)


def _lower(operator: Any, *arguments: Any, **named: Any) -> Any:
    rest = operator._schema.arguments[len(arguments) :]
    made = Call.create(operator, *arguments, *(named.get(a.name, a.default_value) for a in rest))
    return tree_map(lambda x: ir.TensorBox.create(x) if isinstance(x, ir.IRNode) else x, made)


def _entry(name: str) -> Callable[..., Any]:
    """Registers a norm's lowering. Without one, Inductor rejects operators that have a decomposition if the environment
    variable CI is set. Returns what generated code calls."""
    norm, operator = getattr(eager, name), getattr(operators, name).default
    constraint = lowering.tag_to_layout_constraint(get_layout_constraint_tag(operator, with_default=True))
    lowering.make_fallback(operator, layout_constraint=constraint, warn=False)
    lowering.register_lowering(operator, type_promotion_kind=None)(functools.partial(_lower, operator))

    def call(*arguments: Any) -> Any:
        result = norm(*arguments)  # refuses function modes, and types that only the operator takes
        return operator(*arguments) if result is NotImplemented else result

    return call


layer_norm = _entry("layer_norm")
rms_norm = _entry("rms_norm")
add_layer_norm = _entry("add_layer_norm")
add_rms_norm = _entry("add_rms_norm")

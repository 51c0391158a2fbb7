"""How Inductor calls the norms: through the entry points of eager mode, not through PyTorch's dispatcher, which takes
longer.

Inductor is large, so only a process that has loaded it imports this module (see _operators.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config, ir, lowering
from torch._inductor.virtualized import V
from torch._library.utils import get_layout_constraint_tag
from torch.utils._pytree import tree_map

from ._operators import eager, operators

# The versions of PyTorch that tools/stages tests with: in others, the private fields below may mean something else.
IS_TESTED = ".".join(torch.__version__.split(".")[:2]) in ("2.10", "2.12", "2.13", "2.14", "2.15")


class Call(ir.FallbackKernel):
    """A norm in Inductor's graph. Generated C++ calls the operator, and generated Python the functions below."""

    def codegen(self, wrapper: Any) -> None:
        if V.graph.cpp_wrapper:
            super().codegen(wrapper)
            return
        wrapper.add_import_once(f"import {__name__}")
        self.python_kernel_name = f"{__name__}.{self.op_overload._opname}"
        free_x = self._take_memory_of_x(wrapper) if IS_TESTED else None
        if free_x is not None:
            self.python_kernel_name += "_"
        super().codegen(wrapper)
        if free_x is not None:
            wrapper.writeline(free_x)

    def _take_memory_of_x(self, wrapper: Any) -> str | None:
        """Lets y take x's memory, which the caches hold, if Inductor itself would reuse it after the norm: nothing else
        reads or owns it. Returns the line that frees x, or None."""
        inputs: Any = self.inputs
        (x, *_), (y, *more), scheduler = inputs, self.outputs or [self], V.graph.scheduler
        name, *others = (given.get_name() for given in inputs)
        if name not in scheduler.name_to_buf:  # x is an input of the graph
            return None
        node: Any = scheduler.current_node
        buffer: Any = scheduler.name_to_buf[name].node
        dies = node.node is self and name in node.last_usage and wrapper.can_reuse(buffer)
        made: Any = [scheduler.name_to_buf[n].node for n in (name, *others) if n in scheduler.name_to_buf]
        apart = all(type(b.layout) is ir.FixedLayout and not b.get_inputs_that_alias_output() for b in made)
        fits = not more and x.get_stride() == y.get_stride() and buffer.get_numel() == y.get_numel()
        plans = config.allow_buffer_reuse and not config.memory_planning
        if not (dies and apart and name not in others and fits and plans):
            return None
        line: str = wrapper.make_buffer_free(buffer)
        wrapper.freed.add(name)
        return line


def _lower(operator: Any, *arguments: Any, **named: Any) -> Any:
    rest = operator._schema.arguments[len(arguments) :]
    given = {a.name: named.get(a.name, a.default_value) for a in rest}
    options = {a.name: given.pop(a.name) for a in rest if a.kwarg_only}
    made = Call.create(operator, *arguments, *given.values(), **options)
    return tree_map(lambda x: ir.TensorBox.create(x) if isinstance(x, ir.IRNode) else x, made)


def _either(norm: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """`norm`, or `otherwise` for what it refuses: function modes, and types that only the operator takes."""

    def call(*arguments: Any, **options: Any) -> Any:  # all of them, in order
        result = norm(*arguments, *options.values())
        return otherwise(*arguments, **options) if result is NotImplemented else result

    return call


def _entry(name: str) -> Callable[..., Any]:
    """Registers a norm's lowering. Without one, Inductor rejects operators that have a decomposition if the environment
    variable CI is set. Returns what generated code calls."""
    operator = getattr(operators, name).default
    constraint = lowering.tag_to_layout_constraint(get_layout_constraint_tag(operator, with_default=True))
    lowering.make_fallback(operator, layout_constraint=constraint, warn=False)
    lowering.register_lowering(operator, type_promotion_kind=None)(functools.partial(_lower, operator))
    return _either(getattr(eager, name), operator)


layer_norm = _entry("layer_norm")
rms_norm = _entry("rms_norm")
add_layer_norm = _entry("add_layer_norm")
add_rms_norm = _entry("add_rms_norm")
# In place: y takes x's memory.
layer_norm_ = _either(eager.layer_norm_, layer_norm)
rms_norm_ = _either(eager.rms_norm_, rms_norm)

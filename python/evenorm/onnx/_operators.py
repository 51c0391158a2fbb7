"""The operators that compute norms: those of ONNX and of ONNX Runtime. Each function describes a node for evenorm's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from ._graph import Types


@dataclass
class Match:
    """A norm in the graph, and what replaces it. The values after `nodes` are the old ones; None: absent."""

    nodes: tuple[ir.Node, ...]  # to remove
    kind: str  # "Layer", "RMS" or "Group"
    attributes: dict[str, Any]
    x: ir.Value
    y: ir.Value
    weight: ir.Value | None
    bias: ir.Value | None
    residual: ir.Value | None = None
    sum: ir.Value | None = None
    mean: ir.Value | None = None
    rstd: ir.Value | None = None
    added: list[ir.Node] = field(default_factory=list)  # before it
    then: list[Callable[[ir.Value], ir.Node]] = field(default_factory=list)  # after it, each on the last one's result

    def add(self, op: str, inputs: list[ir.Value | None], **attributes: Any) -> ir.Value:
        node = ir.node(op, inputs, attributes)
        node.name = node.outputs[0].name = f"{self.y.name}/evenorm/{len(self.added)}"
        self.added.append(node)
        return node.outputs[0]

    def column(self, value: ir.Value | None, axes: int) -> ir.Value:
        """A vector of channels, with so many axes of size 1 after it."""
        return self.add("Reshape", [value, self.constant(np.array([-1, *[1] * axes]), ir.DataType.INT64)])

    def constant(self, array: np.ndarray[Any, Any], dtype: int) -> ir.Value:
        return self.add("Constant", [], value=ir.tensor(array, dtype=ir.DataType(dtype)))


def match(node: ir.Node, types: Types, opset: int) -> Match | str | None:
    """What a node computes, or why evenorm has no such operator; None if it is no norm."""
    find = OPERATORS.get((node.domain, node.op_type))
    return None if find is None else find(node, types, opset)


def _get(node: ir.Node, name: str, otherwise: Any) -> Any:
    return node.attributes[name].value if name in node.attributes else otherwise


def _eps(node: ir.Node) -> float:
    return float(_get(node, "epsilon", 1e-5))


def _with_parameters(node: ir.Node, kind: str, attributes: dict[str, Any]) -> Match:
    x, weight, bias = node.inputs[:3]
    return Match((node,), kind, {**attributes, "epsilon": _eps(node)}, x, node.outputs[0], weight, bias)


def _at(values: Any, index: int) -> Any:
    return values[index] if index < len(values) else None


def _used(node: ir.Node, index: int) -> ir.Value | None:
    value = _at(node.outputs, index)
    return value if value is not None and (value.uses() or value.is_graph_output()) else None


def _over_last_axes(node: ir.Node, types: Types, opset: int) -> Match | str:
    """LayerNormalization and RMSNormalization, and ONNX Runtime's older name of the latter."""
    axis, shape = _get(node, "axis", -1), types.shape(node.inputs[0])
    if axis >= 0 and shape is None:
        return "its number of axes is not known"
    axes = list(range(axis if axis < 0 else axis - len(shape), 0))
    kind = "Layer" if node.op_type == "LayerNormalization" else "RMS"
    mean, rstd = (_used(node, 1), _used(node, 2)) if kind == "Layer" else (None, _used(node, 1))
    attributes = {"axes": axes, "epsilon": _eps(node)}
    weight, bias = node.inputs[1], _at(node.inputs, 2)
    return Match((node,), kind, attributes, node.inputs[0], node.outputs[0], weight, bias, mean=mean, rstd=rstd)


def _after_sum(node: ir.Node, types: Types, opset: int) -> Match | str:
    """ONNX Runtime's SkipLayerNormalization and SkipSimplifiedLayerNormalization."""
    kind = "RMS" if "Simplified" in node.op_type else "Layer"
    x, residual, weight, *rest = node.inputs
    attributes = {"axes": [-1], "epsilon": _eps(node)}
    bias, of_sum = (None, _at(rest, 0)) if kind == "RMS" else (_at(rest, 0), _at(rest, 1))
    found = Match((node,), kind, attributes, x, node.outputs[0], weight, bias, residual, _used(node, 3))
    found.mean, found.rstd = _used(node, 1), _used(node, 2)
    if found.mean is not None and kind == "RMS":
        return "its mean is used, which an RMS norm does not have"
    if of_sum is not None:
        found.x = found.add("Add", [x, of_sum])
    return found


def _per_channel(found: Match, types: Types, per_group: int = 0) -> Match | str:
    """Gives weight and bias of shape (C) the shape (C, 1, ...). per_group: they have that number of elements instead."""
    shape = types.shape(found.x)
    if shape is None:
        return "its number of axes is not known"
    for name in ("weight", "bias"):
        value = getattr(found, name)
        if per_group:
            if not isinstance(shape[1], int):
                return "its number of channels is not known"
            wide = found.constant(np.array([per_group, shape[1] // per_group]), ir.DataType.INT64)
            column = found.add("Unsqueeze", [value, found.constant(np.array([1]), ir.DataType.INT64)])
            value = found.add("Expand", [column, wide])
        setattr(found, name, found.column(value, len(shape) - 2))
    return found


def _group(node: ir.Node, types: Types, opset: int) -> Match | str:
    groups = _get(node, "num_groups", 0)
    return _per_channel(_with_parameters(node, "Group", {"num_groups": groups}), types, groups if opset < 21 else 0)


def _instance(node: ir.Node, types: Types, opset: int) -> Match | str:
    shape = types.shape(node.inputs[0])
    if shape is None:
        return "its number of axes is not known"
    return _per_channel(_with_parameters(node, "Layer", {"axes": list(range(2 - len(shape), 0))}), types)


def _without_parameters(node: ir.Node, types: Types, opset: int) -> Match | str:
    """MeanVarianceNormalization. It adds 1e-9 to the standard deviation, and has no eps."""
    axes = list(_get(node, "axes", (0, 2, 3)))
    return Match((node,), "Layer", {"axes": axes, "epsilon": 1e-18}, node.inputs[0], node.outputs[0], None, None)


def _channels_last(node: ir.Node, types: Types, opset: int) -> Match | str:
    """ONNX Runtime's GroupNorm, which it computes on GPUs only. Its weight and bias are vectors."""
    found = _with_parameters(node, "Group", {"num_groups": _get(node, "groups", 0)})
    if _get(node, "channels_last", 1):
        found.x = found.add("Transpose", [node.inputs[0]], perm=[0, 3, 1, 2])
        found.then.append(lambda y: ir.node("Transpose", [y], {"perm": [0, 2, 3, 1]}))
    if _get(node, "activation", 0):
        found.then += [lambda y: ir.node("Sigmoid", [y]), lambda y: ir.node("Mul", [y, y.producer().inputs[0]])]
    found.weight, found.bias = (found.column(one, 2) for one in node.inputs[1:3])
    return found


Finder = Callable[[ir.Node, Types, int], Match | str]
OPERATORS: dict[tuple[str, str], Finder] = {
    ("", "LayerNormalization"): _over_last_axes,
    ("", "RMSNormalization"): _over_last_axes,
    ("", "SimplifiedLayerNormalization"): _over_last_axes,
    ("com.microsoft", "SkipLayerNormalization"): _after_sum,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _after_sum,
    ("", "GroupNormalization"): _group,
    ("", "InstanceNormalization"): _instance,
    ("com.microsoft", "GroupNorm"): _channels_last,
    ("", "MeanVarianceNormalization"): _without_parameters,
}

"""Finds pieces of a graph that may compute a norm as a chain of operators: all that leads from a value x to a value y.

A piece contains a root, or a power that is one. x is a value through which all inputs of the root pass. Everything
else that the piece reads is a constant or may be a weight or bias.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from ._graph import constant, entries, is_constant, read_by

REDUCTIONS = {"ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2"}
SHAPES = {"Shape", "Gather", "Slice", "ReduceProd", "Concat"}  # compute sizes
STEPS = {"Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Neg", "Abs", "Max", "Clip", "Cast", "Identity"}
RESHAPES = {"Reshape", "Expand"}
MOVES = RESHAPES | {"Unsqueeze", "Squeeze"}
STEPS |= MOVES | REDUCTIONS | SHAPES
MOST_NODES, MOST_STEPS = 40, 12  # of a piece; from the root to y


class Order:
    """The position of each node in the graph, by which walks visit later nodes first."""

    def __init__(self, graph: ir.Graph) -> None:
        self.of = {node: i for i, node in enumerate(graph.all_nodes())}

    def producer(self, value: ir.Value) -> ir.Node | None:
        """The node that computes the value, if a piece may contain it."""
        node = value.producer()
        return node if node is not None and not node.domain and node.op_type in STEPS else None


@dataclass(frozen=True)
class Piece:
    x: ir.Value
    y: ir.Value
    nodes: tuple[ir.Node, ...]  # in the graph's order

    @cached_property
    def inputs(self) -> list[ir.Value]:
        return [value for value in read_by(self.nodes) if value is not self.x]

    @cached_property
    def fixed(self) -> dict[ir.Value, np.ndarray[Any, Any]]:
        """The inputs that are part of the formula: constant scalars and integers."""
        return {value: tensor for value in self.inputs if (tensor := constant(value)) is not None}

    @cached_property
    def sizes(self) -> dict[ir.Value, list[int | None]]:
        """The inputs that the model computes as shapes for Reshape and Expand."""
        found = {}
        for value in (one for one in self.inputs if one not in self.fixed):
            users = {node.op_type for node in self.nodes if value in node.inputs[1:]}
            shape = entries(value) if users and users <= RESHAPES else None
            found.update({} if shape is None else {value: shape})
        return found

    @property
    def parameters(self) -> list[ir.Value]:
        return [value for value in self.inputs if value not in self.fixed and value not in self.sizes]

    @property
    def reshapes_rows(self) -> bool:
        """Whether the shape of whole rows changes inside, which a trial of other sizes cannot judge."""
        whole = {self.x}
        for node in self.nodes:
            if node.op_type in MOVES and node.inputs[0] in whole:
                return True
            if node.op_type not in REDUCTIONS | SHAPES and any(value in whole for value in node.inputs):
                whole.update(node.outputs)
        return False

    @property
    def clamps(self) -> bool:
        """Whether a bound other than 0 is inside, which a trial may not reach."""
        for node in self.nodes:
            if node.op_type in {"Max", "Clip"}:
                bounds = [self.fixed.get(value) for value in node.inputs if value in self.inputs]
                if node.attributes or len(node.inputs) > 2 or any(one is None or one.any() for one in bounds):
                    return True
        return False

    @property
    def used_elsewhere(self) -> ir.Value | None:
        """A value inside that something outside reads."""
        for node in self.nodes:
            for value in node.outputs if node.op_type not in SHAPES else ():
                if value is not self.y and (
                    value.is_graph_output() or any(one not in self.nodes for one in value.consumers())
                ):
                    return value
        return None


def is_root(node: ir.Node) -> bool:
    if node.op_type == "Pow" and len(node.inputs) == 2:
        power = constant(node.inputs[1])
        return power is not None and power.size == 1 and abs(float(power.flat[0])) == 0.5
    return node.op_type in {"Sqrt", "ReduceL2"}


def pieces(root: ir.Node, order: Order) -> list[Piece]:
    """The pieces around a root, those of most nodes first."""
    found, results = [], _results(root)
    for x in _sources(root, order):
        for y in results:
            nodes = _between(x, y, order)
            piece = Piece(x, y, nodes)
            is_whole = root in nodes and len(nodes) <= MOST_NODES and not piece.reshapes_rows and not piece.clamps
            if is_whole and any(node.op_type in REDUCTIONS for node in nodes):
                found.append(piece)
    return sorted(found, key=lambda piece: -len(piece.nodes))


def _sources(root: ir.Node, order: Order) -> Iterator[ir.Value]:
    """The values through which all inputs of the root pass."""
    open_values = _computed(root)
    for _ in range(MOST_NODES):
        if len(open_values) == 1:
            yield next(iter(open_values))
        if not open_values:
            return
        last = max(open_values, key=lambda value: order.of.get(value.producer(), -1))
        node = order.producer(last)
        if node is None:
            return
        open_values = open_values - {last} | _computed(node)


def _computed(node: ir.Node) -> set[ir.Value]:
    """What a node reads, without constants and the sizes of a result."""
    inputs = node.inputs[:1] if node.op_type in RESHAPES and entries(node.inputs[1]) else node.inputs
    return {value for value in inputs if value is not None and not is_constant(value)}


def _results(root: ir.Node) -> list[ir.Value]:
    """The values that steps compute from the root."""
    found, nodes = {}, [root]
    for _ in range(MOST_STEPS):
        found.update(dict.fromkeys(value for node in nodes for value in node.outputs))
        users = dict.fromkeys(user for node in nodes for value in node.outputs for user in value.consumers())
        nodes = [user for user in users if user.op_type in STEPS - SHAPES and not user.domain]
    return list(found)


def _between(x: ir.Value, y: ir.Value, order: Order) -> tuple[ir.Node, ...]:
    """The nodes on all ways from x to y."""
    earliest = order.of.get(x.producer(), -1)
    seen: dict[ir.Value, bool] = {x: True}

    def leads_from_x(value: ir.Value | None, left: int) -> bool:
        if value is None or value in seen:
            return value is not None and seen[value]
        node = order.producer(value)
        if node is None or left == 0 or order.of[node] < earliest:
            return False
        seen[value] = any([leads_from_x(one, left - 1) for one in node.inputs])
        return seen[value]

    leads_from_x(y, MOST_NODES)
    nodes = {value.producer() for value, leads in seen.items() if leads and value is not x}
    return tuple(sorted(nodes, key=order.of.__getitem__))

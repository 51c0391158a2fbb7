"""convert(): replaces a model's norms by evenorm's operators, and reports what it replaced and left.

A node that computes a norm is known by its operator. Other norms are chains of operators: _pieces.py finds what may be
one, and _trial.py decides.
"""

import filecmp
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common
from onnx import TensorProto

from evenorm._tables import Left, Replaced, report

from ._functions import DOMAIN, can_cast, function
from ._graph import Types, is_constant
from ._operators import Match, match
from ._pieces import Order, is_root, pieces
from ._trial import Norm, settle, types_differ

OLDEST_OPSET = 7  # the first with broadcasting
OVERRIDABLE_IR, FUNCTIONS_IR = 4, 8  # IR versions from which initializers may be inputs, and files have functions


@dataclass(frozen=True, repr=False)
class Conversion:
    """What convert() did. Its repr is a table; norms whose names differ only in numbers share a line."""

    model: onnx.ModelProto
    replaced: tuple[Replaced, ...]
    left: tuple[Left, ...]
    folder: Path | None  # of the model's external data

    def __repr__(self) -> str:
        return "\n".join(report("evenorm.onnx.convert", self.replaced, self.left))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file. Copies its external data if the file is in another folder.

        Raises:
            ValueError: the external data is outside the model's folder.
            FileExistsError: the other folder has a file of that name with other data.
        """
        target, folder = Path(path), self.folder
        for name in sorted(_external(self.model)) if folder is not None else ():
            data, copy = folder / name, target.parent / name
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"the model's external data {name} is not in its folder")
            if copy.exists() and not (copy.samefile(data) or filecmp.cmp(copy, data, shallow=False)):
                raise FileExistsError(f"{copy} has other data")
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(data, copy)
        onnx.save(self.model, target)


def convert(model: str | PathLike[str] | bytes | onnx.ModelProto) -> Conversion:
    """Replace a model's norms by evenorm's operators for ONNX Runtime; report what was replaced, what was left, and why.

    The file runs without evenorm, too: it contains each operator as a function of standard operators. With
    `evenorm.onnx.session` or `library`, ONNX Runtime takes evenorm's kernels.

    Operators that compute norms are replaced as they are. Chains of operators are replaced if they compute a norm when
    run in float64 on random rows, whatever their operators are. An Add before a norm is taken in.

    Args:
        model: a path, the bytes of a model, or an onnx.ModelProto, which is not changed.

    Returns:
        A Conversion with model (a new onnx.ModelProto), replaced, left and save(path). Its repr is a table.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the model is no ONNX model, older than opset 7, or has sparse initializers or training information.

    Example:
        >>> import evenorm.onnx
        >>> conversion = evenorm.onnx.convert("model.onnx")  # doctest: +SKIP
        >>> conversion.save("converted.onnx")  # doctest: +SKIP
    """
    return edit(*load(model))


Observer = Callable[[Match, str], None]


def edit(proto: onnx.ModelProto, folder: Path | None, observe: Observer = lambda match, old: None) -> Conversion:
    """Converts a model. `observe` gets each norm, and what it was, while its nodes are still in the graph."""
    edited = ir.from_proto(proto)
    ir.external_data.set_base_dir(edited.graph, folder or "")
    editor = _Editor(edited, Types(proto), observe)
    editor.run()
    result = ir.to_proto(edited)
    _pad(result.graph, {body.name: len(body.output) for body in result.functions if body.domain == DOMAIN})
    return Conversion(result, tuple(editor.replaced), tuple(editor.left), folder)


def load(model: Any) -> tuple[onnx.ModelProto, Path | None]:
    """The model without its external data, and the folder of that data."""
    folder = None
    if isinstance(model, onnx.ModelProto):
        proto = model
    elif isinstance(model, bytes):
        proto = _parsed(model, "model")
    elif isinstance(model, str | PathLike):
        folder = Path(model).absolute().parent
        proto = _parsed(Path(model).read_bytes(), str(model))
    else:
        raise TypeError(f"model is a {type(model).__name__}, but must be a path, bytes or an onnx.ModelProto")
    if proto.graph.sparse_initializer or proto.training_info:
        raise ValueError("the model has sparse initializers or training information, which would be lost")
    return proto, folder


def _parsed(data: bytes, name: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:
        raise ValueError(f"{name} is not an ONNX model: {error}") from None
    if not proto.opset_import:
        raise ValueError(f"{name} is not an ONNX model: it has no opset")
    return proto


def _external(model: onnx.ModelProto) -> set[str]:
    """The files of the model's external data."""
    found = onnx.external_data_helper._get_all_tensors(model)
    return {one.value for tensor in found for one in tensor.external_data if one.key == "location"}


def _pad(graph: onnx.GraphProto, outputs: dict[str, int]) -> None:
    """Gives each node as many outputs as its function has, as ONNX's checks want it."""
    for node in graph.node:
        if node.domain == DOMAIN:
            node.output.extend([""] * (outputs[node.op_type] - len(node.output)))
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _pad(inner, outputs)


def _are_last(axes: list[int]) -> bool:
    return bool(axes) and axes == list(range(-len(axes), 0))


@dataclass
class _Body:
    """What the body of an operator is made for."""

    eps: float  # of the first node
    types: set[int]
    outputs: int = 1


class _Editor:
    def __init__(self, model: ir.Model, types: Types, observe: Observer) -> None:
        model.graph.sort()
        ir.passes.common.RemoveUnusedNodesPass()(model)
        self.model, self.types, self.observe, self.order = model, types, observe, Order(model.graph)
        imports = model.graph.opset_imports
        self.opset = imports.get("", imports.get("ai.onnx", 0))
        if 0 < self.opset < OLDEST_OPSET:
            raise ValueError(f"the model has opset {self.opset}, but {OLDEST_OPSET} is the oldest that is supported")
        for value in model.graph.inputs if (model.ir_version or 0) >= OVERRIDABLE_IR else ():
            value.meta["input"] = True
        self.replaced, self.left = list[Replaced](), list[Left]()
        self.made: dict[str, _Body] = {}
        for node in model.graph.all_nodes():  # of an earlier conversion
            if node.domain == DOMAIN:
                self._count(node)

    def run(self) -> None:
        for node in list(self.model.graph.all_nodes()):
            found, old = self._find(node)
            if isinstance(found, Match):
                found = self._replace(found, old) or found
            if isinstance(found, str):
                self.left.append(Left(node.outputs[0].name or "", old, found))
        for body in self.model.functions.values():
            if body.domain != DOMAIN and any(match(node, self.types, self.opset) or is_root(node) for node in body):
                self.left.append(Left(body.name, "local function", "inline it with onnx.inliner to convert its norms"))
        if not self.replaced:
            return
        self.model.graph.sort()
        ir.passes.common.RemoveUnusedNodesPass()(self.model)
        self.model.ir_version = max(self.model.ir_version, FUNCTIONS_IR)
        self.model.graph.opset_imports[DOMAIN] = 1
        for name, one in self.made.items():
            body = ir.serde.deserialize_function(
                function(name, self.opset, one.types, one.eps, one.outputs, self.types.only_float32)
            )
            self.model.functions[body.identifier()] = body

    def _find(self, node: ir.Node) -> tuple[Match | str | None, str]:
        """What a node or the chain around it computes, or why it is left; None if it is like no norm. And what it is."""
        if node.graph is None:
            return None, ""  # it was a part of what was replaced
        found = match(node, self.types, self.opset)
        return self._chain(node) if found is None and is_root(node) else (found, node.op_type)

    def _chain(self, root: ir.Node) -> tuple[Match | str | None, str]:
        """What the chain around a root computes, or why it is left; None if it is not like a norm."""
        reasons = []
        for piece in pieces(root, self.order):
            old = f"chain of {len(piece.nodes)}"
            if (used := piece.used_elsewhere) is not None:
                reasons.append(f"{used.name} is used elsewhere, too")
                continue
            norm = settle(piece, self.types, self.opset)
            if isinstance(norm, Norm):
                norm = types_differ(self.types, piece.x, piece.y, norm.weight, norm.bias) or norm
            if isinstance(norm, Norm):
                attributes = {"axes": list(norm.axes), "epsilon": norm.eps}
                return Match(piece.nodes, norm.kind, attributes, piece.x, piece.y, norm.weight, norm.bias), old
            reasons.insert(0, norm)
        return (reasons[0] if reasons else None), "chain"

    def _replace(self, found: Match, old: str) -> str | None:
        """Puts the operator in the place of a match, or returns why not."""
        x, y = found.x, found.y
        source = found.nodes[0].inputs[0] if len(found.nodes) == 1 else x
        if not self.types.dtype(source) and found.weight is not None:
            self.types.assume(source, self.types.dtype(found.weight))
        if reason := types_differ(self.types, x, y, found.weight, found.bias):
            return reason
        self._take_in_sum(found)
        name = f"{'Add' if found.residual is not None else ''}{found.kind}Normalization"
        made = self.made.get(name, _Body(found.attributes["epsilon"], set()))
        types = made.types | {self.types.dtype(one) for one in (x, found.weight) if one is not None}
        if TensorProto.DOUBLE in types and len(types) > 1:
            return f"the file has {name} in float64 and other types"
        if TensorProto.DOUBLE in types and (found.mean or found.rstd):
            return "its mean or rstd is used, which is float32"
        if found.kind == "Group" and self.opset < 12:
            return f"a group norm needs opset 12, but the model has {self.opset}"
        if types - {TensorProto.FLOAT, TensorProto.DOUBLE} and not can_cast(self.opset):
            return f"types other than float32 and float64 need opset 15, but the model has {self.opset}"
        if self.opset < 12 and made.eps != found.attributes["epsilon"]:
            return f"the model has opset {self.opset}, before 12, with which all norms need one epsilon"
        self.observe(found, old)
        self._fill(found)
        self._count(self._put(found, name))
        attributes = ", ".join(
            f"{key}={value:.7g}" if key == "epsilon" else f"{key}={value}" for key, value in found.attributes.items()
        )
        self.replaced.append(Replaced(found.y.name or "", old, f"evenorm.{name}({attributes})"))
        return None

    def _take_in_sum(self, found: Match) -> None:
        """Makes an Add before the norm a part of it, if one summand has the sum's shape and the other whole rows."""
        add, shape = found.x.producer(), self.types.shape(found.x)
        axes = found.attributes.get("axes", [])
        parameters = [one for one in (found.weight, found.bias) if one is not None]
        if found.residual is not None or add is None or add.op_type != "Add" or add.domain or shape is None:
            return
        if not _are_last(axes) or add.graph is not found.nodes[-1].graph:
            return
        if not all(is_constant(one) for one in parameters) or None in shape:  # what is computed may need the sum
            return
        for x, residual in (add.inputs, add.inputs[::-1]):
            others = self.types.shape(residual)
            if is_constant(x) or is_constant(residual) or self.types.shape(x) != shape or others is None:
                continue
            ones = zip(reversed(others), reversed(shape), range(-1, -len(shape) - 1, -1), strict=False)
            if len(others) >= len(axes) and all(
                one == size or (one == 1 and axis not in axes) for one, size, axis in ones
            ):
                uses = [user for user in found.x.consumers() if user not in found.nodes]
                found.sum = found.x if uses or found.x.is_graph_output() else None
                found.x, found.residual, found.nodes = x, residual, (add, *found.nodes)
                return

    def _fill(self, found: Match) -> None:
        """Adds a weight of ones and a bias of zeros if they are absent, so that one body serves all nodes."""
        dtype, axes = self.types.dtype(found.weight or found.bias or found.x), found.attributes.get("axes", [])
        sizes = (self.types.shape(found.x) or [])[-len(axes) or None :]
        whole = _are_last(axes) and len(sizes) == len(axes) and all(type(one) is int for one in sizes)
        for name, value in (("weight", 1), ("bias", 0)):
            if getattr(found, name) is None and (found.kind, name) != ("RMS", "bias"):
                array = np.full(sizes if whole else [1], value, ir.DataType(dtype).numpy())
                setattr(found, name, found.constant(array, dtype))

    def _count(self, node: ir.Node) -> None:
        """Makes the operator's body one that serves the node, too."""
        made = self.made.setdefault(node.op_type, _Body(node.attributes["epsilon"].as_float(), set()))
        made.types |= {
            self.types.dtype(one) for one in (node.inputs[0], node.inputs[1 + node.op_type.startswith("Add")]) if one
        }
        made.outputs = max(made.outputs, *(i + 1 for i, one in enumerate(node.outputs) if one.name))

    def _put(self, found: Match, name: str) -> ir.Node:
        residual = [] if found.residual is None else [found.residual]
        inputs = [found.x, *residual, found.weight, *([] if found.kind == "RMS" else [found.bias])]
        old = [found.y, *([found.sum] if residual else []), *([] if found.kind == "RMS" else [found.mean]), found.rstd]
        while old[-1] is None:
            old.pop()
        node = ir.Node(DOMAIN, name, inputs, ir.convenience.convert_attributes(found.attributes), num_outputs=len(old))
        node.name = f"{found.y.name}/evenorm"
        after, results = [node], list(node.outputs)
        for make in found.then:
            after.append(make(results[0]))
            results[0] = after[-1].outputs[0]
        last = found.y.producer()
        last.append([*found.added, *after])
        for before, new in zip(old, results, strict=True):
            new.name = ""  # absent
            if before is not None:
                # ONNX Runtime before 1.28 needs the shape to compute in place, because it does not infer it.
                new.type = before.type or ir.TensorType(ir.DataType(self.types.dtype(before)))
                new.shape, new.doc_string = before.shape or self.types.known_shape(before), before.doc_string
                new.metadata_props.update(before.metadata_props)
                before.replace_all_uses_with(new, replace_graph_outputs=True)
                new.name = before.name
        for one in reversed(found.nodes):
            if not any(value.uses() or value.is_graph_output() for value in one.outputs):
                one.graph.remove(one, safe=True)
        return node

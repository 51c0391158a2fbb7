"""What the converter asks of a graph: constants, types and shapes."""

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

Shape = list[int | str | None]
INTEGERS, MOST_INTEGERS = {ir.DataType.INT64, ir.DataType.INT32}, 64
COPIES = {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape"}  # keep the entries of a vector of integers


class Types:
    """Types and shapes of the values of a model, as far as ONNX infers them without running it."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.infos: dict[str, onnx.TypeProto.Tensor] = {}
        try:
            self._read(onnx.shape_inference.infer_shapes(proto).graph)
        except Exception as error:  # of protobuf, for more than 2 GB
            raise ValueError(
                f"ONNX cannot infer the shapes of the model ({error}). Give the path of a large one"
            ) from None

    def _read(self, graph: onnx.GraphProto) -> None:
        infos = (*graph.value_info, *graph.input, *graph.output)
        self.infos.update({one.name: one.type.tensor_type for one in infos})
        for attribute in (one for node in graph.node for one in node.attribute):
            for inner in (attribute.g, *attribute.graphs):
                self._read(inner)

    @property
    def only_float32(self) -> bool:
        others = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
        return not any(one.elem_type in others for one in self.infos.values())

    def assume(self, value: ir.Value, dtype: int) -> None:
        self.infos.setdefault(value.name, onnx.TypeProto.Tensor()).elem_type = dtype

    def dtype(self, value: ir.Value) -> int:
        """An element type of ONNX; 0 if it is not known."""
        tensor, node = ir.convenience.get_const_tensor(value), value.producer()
        if tensor is not None:
            return int(tensor.dtype)
        if node is not None and node.graph is None:  # a new one, which changes no type
            return self.dtype(node.inputs[0])
        return self.infos[value.name].elem_type if value.name in self.infos else int(value.dtype or 0)

    def shape(self, value: ir.Value) -> Shape | None:
        """Sizes, which are names or None if they are not known; None if not even their number is."""
        if (tensor := ir.convenience.get_const_tensor(value)) is not None:
            return list(tensor.shape.numpy())
        info = self.infos.get(value.name)
        if info is None or not info.HasField("shape"):
            return None
        return [one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in info.shape.dim]

    def known_shape(self, value: ir.Value) -> ir.Shape | None:
        """The shape with None for each size that is not a number; None if the number of axes is not known."""
        shape = self.shape(value)
        return None if shape is None else ir.Shape([one if isinstance(one, int) else None for one in shape])


def read_by(nodes: Collection[ir.Node]) -> list[ir.Value]:
    """What the nodes read from outside, each value once."""
    made = {value for node in nodes for value in node.outputs}
    read = (value for node in nodes for value in node.inputs if value is not None)
    return [value for value in dict.fromkeys(read) if value not in made]


def is_constant(value: ir.Value) -> bool:
    """Whether the value is the same in all runs. An initializer that is an input, too, may not be."""
    source = origin(value)
    return ir.convenience.get_const_tensor(source) is not None and "input" not in source.meta


def origin(value: ir.Value) -> ir.Value:
    """What Cast and Identity nodes read before the value."""
    while (
        (node := value.producer()) is not None and node.op_type in {"Cast", "Identity"} and node.inputs[0] is not None
    ):
        value = node.inputs[0]
    return value


def constant(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The value of a scalar constant, or of one of a few integers."""
    tensor = None if value is None or not is_constant(value) else ir.convenience.get_const_tensor(origin(value))
    if tensor is None or (tensor.size != 1 and (tensor.dtype not in INTEGERS or tensor.size > MOST_INTEGERS)):
        return None
    return tensor.numpy()


def entries(value: ir.Value | None) -> list[int | None] | None:
    """The entries of a vector of integers, None for each that the model computes; None if their number is not known."""
    tensor = constant(value)
    if tensor is not None:
        return [int(one) for one in tensor.flatten()]
    node = value.producer() if value is not None else None
    if node is None:
        return None
    if node.op_type in COPIES:
        return entries(node.inputs[0])
    if node.op_type == "Concat":
        parts = [entries(one) for one in node.inputs]
        return None if None in parts else [one for part in parts for one in part or ()]
    return [None] if node.op_type in {"Slice", "Gather"} else None


def axes_of(node: ir.Node) -> list[int] | None:
    """The axes of a reduction; None: all of them, or those of an input that is computed."""
    if "axes" in node.attributes:
        return list(node.attributes["axes"].as_ints())
    tensor = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if tensor is None else [int(axis) for axis in tensor.flatten()]

"""inspect(): measures the norms of an ONNX model on the caller's own inputs, in ONNX Runtime.

The model runs once to get the rows of each norm. Each norm then runs alone on these rows, as the model has it and
converted.
"""

import statistics
import time
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from evenorm._inspection import InspectedNorm, Inspection

from ._convert import Editor, convert, load
from ._functions import DOMAIN
from ._graph import Types, is_constant
from ._operators import Match
from ._session import session

Array = np.ndarray[Any, Any]
FEW_ROWS = 8  # samples that are computed alone
ERRORS = 3  # of ONNX Runtime's log
TIMED_RUNS, TIMED_SECONDS = 10, 1.0  # at most
SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}


def inspect(model: str | PathLike[str] | bytes | onnx.ModelProto, inputs: Mapping[str, Array]) -> Inspection:
    """Run an ONNX model on your own inputs and measure each of its norms: accuracy, batch dependence and time.

    Args:
        model: a path, the bytes of a model, or an onnx.ModelProto.
        inputs: the model's inputs, by name.

    Returns:
        An Inspection, as evenorm.torch.inspect returns it: print() shows a table, and `norms` has an InspectedNorm for
        each norm, with the largest error first. error is that of ONNX Runtime with its default optimisations; y has
        the rows that the norm has in the model. same_bits_alone is whether samples have the same bits when the norm
        computes them alone; None: it normalises over samples, or has sizes that the model computes.

    Example:
        >>> import evenorm.onnx, numpy
        >>> evenorm.onnx.inspect("model.onnx", {"x": numpy.load("x.npy")})  # doctest: +SKIP
    """
    proto, folder = load(model)
    edited = ir.from_proto(proto)
    ir.external_data.set_base_dir(edited.graph, folder or "")
    editor = Editor(edited, Types(proto))
    found = [(node, *editor.find(node)) for node in edited.graph]
    converted = convert(proto).model
    norms = [_Norm(match, old, editor, converted) for _, match, old in found if isinstance(match, Match)]
    left = [InspectedNorm(n.outputs[0].name or "", old, reason=why) for n, why, old in found if isinstance(why, str)]
    values = _values(proto, folder, norms, inputs)
    seconds = _time(_plain(model if folder else proto), dict(inputs))
    for norm in norms:
        norm.measure(values, seconds)
    reports = sorted((norm.report for norm in norms), key=lambda one: -(one.error or 0))
    return Inspection((*reports, *left), seconds, (), "evenorm.onnx.inspect")


def _values(proto: onnx.ModelProto, folder: Any, norms: "list[_Norm]", inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the norms read, in a run of the model that also returns it."""
    wider = onnx.ModelProto()
    wider.CopyFrom(proto)
    known = {one.name for one in (*proto.graph.output, *proto.graph.input)}
    names = dict.fromkeys(value.name for norm in norms for value in norm.inputs if value.name not in known)
    wider.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    onnx.load_external_data_for_model(wider, str(folder or ""))
    one = _plain(wider)
    results = one.run(None, dict(inputs))
    return {**inputs, **dict(zip((output.name for output in one.get_outputs()), results, strict=True))}


def _plain(model: Any) -> Any:
    """A session without evenorm's operators."""
    import onnxruntime

    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return onnxruntime.InferenceSession(source, _quiet(), providers=["CPUExecutionProvider"])


def _quiet() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = ERRORS
    return options


def _time(one: Any, inputs: dict[str, Array]) -> float:
    spent: list[float] = []
    while not spent or (len(spent) < TIMED_RUNS and sum(spent) < TIMED_SECONDS):
        start = time.perf_counter()
        one.run(None, inputs)
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


class _Norm:
    """A norm of the model, which can run alone."""

    def __init__(self, match: Match, old: str, editor: Editor, converted: onnx.ModelProto) -> None:
        editor.take_in_sum(match)
        self.converted = converted
        self.match, self.types, self.opset = match, editor.types, editor.opset
        made = {value for node in match.nodes for value in node.outputs}
        read = [value for node in match.nodes for value in node.inputs if value is not None and value not in made]
        self.constants = [value for value in dict.fromkeys(read) if is_constant(value)]
        self.inputs = [value for value in dict.fromkeys(read) if not is_constant(value)]
        axes = (
            f"axes={match.attributes['axes']}"
            if "axes" in match.attributes
            else f"num_groups={match.attributes['num_groups']}"
        )
        formula = f"{match.kind} norm, {axes}, eps={match.attributes['epsilon']:.7g}"
        self.report = InspectedNorm(match.y.name or "", old, formula, calls=1)

    def model(self, nodes: list[onnx.NodeProto], outputs: list[str], values: dict[str, Array]) -> onnx.ModelProto:
        """A model of some nodes for inputs like these, and any number of samples."""
        rank = values[self.inputs[0].name or ""].ndim
        infos = []
        for name in (value.name for value in self.inputs):
            shape = ["N" if i == 0 and values[name].ndim == rank else n for i, n in enumerate(values[name].shape)]
            dtype = helper.np_dtype_to_tensor_dtype(values[name].dtype)
            infos.append(helper.make_tensor_value_info(name, dtype, shape))
        read = {name for node in nodes for name in node.input}
        tensors = [(ir.convenience.get_const_tensor(one), one.name) for one in self.constants if one.name in read]
        initializers = [numpy_helper.from_array(tensor.numpy(), name) for tensor, name in tensors]
        graph = helper.make_graph(
            nodes, "norm", infos, list(map(helper.make_empty_tensor_value_info, outputs)), initializers
        )
        opsets = [("", self.opset), ("com.microsoft", 1), (DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets], ir_version=8)

    def measure(self, values: dict[str, Array], seconds: float) -> None:
        report, given = self.report, {value.name: values[value.name] for value in self.inputs}
        y_name = self.match.y.name or ""
        one = _plain(self.model([ir.serde.serialize_node(node) for node in self.match.nodes], [y_name], given))
        y = one.run(None, given)[0]
        if y.size == 0:
            report.reason = "its x had no elements"
            return
        ours, weight, bias = self._run_ours(given)
        x = np.asarray(given[self.match.x.name] if self.match.residual is None else self._sum(given))
        groups = self.match.attributes.get("num_groups")
        axes = tuple(self.match.attributes.get("axes", (2,)))
        rows = (x if groups is None else x.reshape(len(x), groups, -1)).astype(np.float64)
        mean = rows.mean(axes, keepdims=True) if self.match.kind != "RMS" else np.zeros(())
        rstd = 1 / np.sqrt(np.square(rows - mean).mean(axes, keepdims=True) + self.match.attributes["epsilon"])
        xhat = ((rows - mean) * rstd).reshape(x.shape)
        report.columns = int(np.prod([rows.shape[axis] for axis in axes]))
        report.rows = x.size // report.columns
        report.types = SHORT[str(x.dtype)]
        report.mean_over_std = float(np.abs(mean * rstd).max())
        report.x_over_std = float(np.abs(rows * rstd).max())
        largest = np.broadcast_to(np.abs(xhat.reshape(rows.shape)).max(axes, keepdims=True), rows.shape).reshape(
            x.shape
        )
        unit = np.finfo(x.dtype).eps / 2 * (np.abs(weight) * largest + np.abs(bias))
        report.error, report.evenorm_error = (
            float(np.nanmax(np.abs(result - (xhat * weight + bias)) / unit)) for result in (y, ours)
        )
        if all(axis % rows.ndim for axis in axes) and all(given[v.name].ndim == x.ndim for v in self.inputs):
            report.same_bits_alone = self._is_same_alone(one, given, y)
        report.seconds = _time(one, given)
        report.share = report.seconds / seconds

    def _sum(self, given: dict[str, Array]) -> Array:
        assert self.match.residual is not None
        return given[self.match.x.name or ""] + given[self.match.residual.name or ""]

    def _run_ours(self, given: dict[str, Array]) -> tuple[Array, Array, Array]:
        """y of evenorm's operator, and its weight and bias."""
        name = self.match.y.name or ""
        nodes = [node for node in self.converted.graph.node if node.name.startswith(f"{name}/evenorm")]
        node = next(node for node in nodes if node.domain == DOMAIN)
        parameters = node.input[2 if node.op_type.startswith("Add") else 1 :]
        copies = [helper.make_node("Identity", [one], [f"{one}/copy"]) for one in parameters]
        outputs = [name, *(copy.output[0] for copy in copies)]
        y, *found = session(self.model([*nodes, *copies], outputs, given), _quiet()).run(None, given)
        weight, bias = (one.astype(np.float64) for one in (*found, np.zeros((), y.dtype))[:2])
        return y, weight, bias

    def _is_same_alone(self, one: Any, given: dict[str, Array], y: Array) -> bool:
        for i in np.linspace(0, len(y) - 1, min(len(y), FEW_ROWS)).astype(int):
            sample = {name: array if len(array) == 1 else array[i : i + 1] for name, array in given.items()}
            if one.run(None, sample)[0].tobytes() != y[i : i + 1].tobytes():
                return False
        return True

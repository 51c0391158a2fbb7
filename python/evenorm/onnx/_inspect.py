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

from ._convert import edit, load
from ._functions import DOMAIN
from ._graph import read_by
from ._operators import Match
from ._session import opened, session
from ._trial import moments

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
    of_graph = {name for node in proto.graph.node for name in node.output}
    norms: list[_Norm] = []

    def observe(match: Match, old: str) -> None:
        if match.y.name in of_graph:  # what is in a subgraph cannot be seen from outside
            norms.append(_Norm(match, old))

    conversion = edit(proto, folder, observe)
    left = [InspectedNorm(name, old, reason=reason) for name, old, reason in conversion.left]
    values = _values(proto, folder, norms, inputs)
    seconds = _time(opened(model if folder else proto, _quiet()), dict(inputs))
    for norm in norms:
        norm.measure(values, seconds, conversion.model)
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
    one = opened(wider, _quiet())
    results = one.run(None, dict(inputs))
    return {**inputs, **dict(zip((output.name for output in one.get_outputs()), results, strict=True))}


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

    def __init__(self, match: Match, old: str) -> None:
        self.match, self.nodes = match, [ir.serde.serialize_node(node) for node in match.nodes]
        read = [(value, ir.convenience.get_const_tensor(value)) for value in read_by(match.nodes)]
        self.constants = {value.name: tensor for value, tensor in read if tensor is not None}
        self.inputs = [value for value, tensor in read if tensor is None]
        over = next(f"{name}={value}" for name, value in match.attributes.items() if name != "epsilon")
        formula = f"{match.kind} norm, {over}, eps={match.attributes['epsilon']:.7g}"
        self.report = InspectedNorm(match.y.name or "", old, formula, calls=1)

    def model(self, nodes: list[Any], outputs: list[str], values: dict[str, Array], opsets: Any) -> onnx.ModelProto:
        """A model of some nodes for inputs like these, and any number of samples."""
        rank = values[self.inputs[0].name].ndim
        infos = []
        for name in (value.name for value in self.inputs):
            shape = ["N" if i == 0 and values[name].ndim == rank else n for i, n in enumerate(values[name].shape)]
            dtype = helper.np_dtype_to_tensor_dtype(values[name].dtype)
            infos.append(helper.make_tensor_value_info(name, dtype, shape))
        read = {name for node in nodes for name in node.input}
        tensors = [numpy_helper.from_array(one.numpy(), name) for name, one in self.constants.items() if name in read]
        graph = helper.make_graph(
            nodes, "norm", infos, list(map(helper.make_empty_tensor_value_info, outputs)), tensors
        )
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def measure(self, values: dict[str, Array], seconds: float, converted: onnx.ModelProto) -> None:
        report, match, given = self.report, self.match, {value.name: values[value.name] for value in self.inputs}
        one = opened(self.model(self.nodes, [match.y.name], given, converted.opset_import), _quiet())
        y = one.run(None, given)[0]
        if y.size == 0:
            report.reason = "its x had no elements"
            return
        x = given[match.x.name] + (0 if match.residual is None else given[match.residual.name])
        groups, axes = match.attributes.get("num_groups"), tuple(match.attributes.get("axes", (2,)))
        rows = (x if groups is None else x.reshape(len(x), groups, -1)).astype(np.float64)
        mean, var = moments(rows, match.kind, axes)
        rstd = 1 / np.sqrt(var + match.attributes["epsilon"])
        xhat = (rows - mean) * rstd
        report.columns = int(np.prod([rows.shape[axis] for axis in axes]))
        report.rows = x.size // report.columns
        report.types = SHORT[str(x.dtype)]
        report.mean_over_std = float(np.abs(mean * rstd).max())
        report.x_over_std = float(np.abs(rows * rstd).max())
        results = (y, *self._run_ours(given, converted))
        old, ours, weight, bias = (np.broadcast_to(part, x.shape).reshape(rows.shape) for part in results)
        unit = np.finfo(x.dtype).eps / 2 * (np.abs(weight) * np.abs(xhat).max(axes, keepdims=True) + np.abs(bias))
        report.error, report.evenorm_error = (
            float(np.nanmax(np.abs(result - (xhat * weight + bias)) / unit)) for result in (old, ours)
        )
        if all(axis % rows.ndim for axis in axes) and all(given[v.name].ndim == x.ndim for v in self.inputs):
            report.same_bits_alone = self._is_same_alone(one, given, y)
        report.seconds = _time(one, given)
        report.share = report.seconds / seconds

    def _run_ours(self, given: dict[str, Array], converted: onnx.ModelProto) -> tuple[Array, Array, Array]:
        """y of evenorm's operator, and its weight and bias."""
        name = self.match.y.name
        nodes = [node for node in converted.graph.node if node.name.startswith(f"{name}/evenorm")]
        node = next(node for node in nodes if node.domain == DOMAIN)
        parameters = node.input[2 if node.op_type.startswith("Add") else 1 :]
        copies = [helper.make_node("Identity", [one], [f"{one}/copy"]) for one in parameters]
        outputs = [name, *(copy.output[0] for copy in copies)]
        model = self.model([*nodes, *copies], outputs, given, converted.opset_import)
        y, *found = session(model, _quiet()).run(None, given)
        weight, bias = (one.astype(np.float64) for one in (*found, np.zeros((), y.dtype))[:2])
        return y, weight, bias

    def _is_same_alone(self, one: Any, given: dict[str, Array], y: Array) -> bool:
        for i in np.linspace(0, len(y) - 1, min(len(y), FEW_ROWS)).astype(int):
            sample = {name: array if len(array) == 1 else array[i : i + 1] for name, array in given.items()}
            if one.run(None, sample)[0].tobytes() != y[i : i + 1].tobytes():
                return False
        return True

"""The measured libraries, each as a C function that the clock can call.

Native libraries are shared objects with the functions of rival.h. ONNX Runtime is called from Python with bound buffers;
the interpreter takes some microseconds of each call. The forms that begin with "torch-" call the modules of PyTorch and
evenorm.torch from Python, as their users do.
"""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Callable

import numpy as np
from problem import EPS, STORED, Inputs, Outputs, Problem, problem_of

CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
COPIES = ("memcpy", "streaming", "plain")


class Rival:
    """What the clock runs: a C function and its argument."""

    def __init__(self, name: str, function: int, context: int | None):
        self.name, self.function, self.context = name, function, context

    def call(self) -> None:
        CALL(self.function)(self.context)

    def fetch(self) -> None:
        """Copies the results of the last call to the outputs, if they are not there already."""

    def close(self) -> None:
        """Frees what the library has allocated."""


class Native(Rival):
    def __init__(self, name: str, library: ctypes.CDLL, handle: int):
        super().__init__(name, ctypes.cast(library.bench_run, ctypes.c_void_p).value, handle)
        self.library = library

    def fetch(self) -> None:
        self.library.bench_fetch(self.context)

    def close(self) -> None:
        self.library.bench_free(self.context)


class Python(Rival):
    def __init__(self, name: str, call: Callable[[], object], fetch=None):
        self.callback = CALL(lambda _: (call(), None)[1])
        super().__init__(name, ctypes.cast(self.callback, ctypes.c_void_p).value, None)
        self.fetched = fetch

    def fetch(self) -> None:
        if self.fetched:
            self.fetched()


class Library:
    """One shared object."""

    def __init__(self, path: pathlib.Path):
        self.functions = ctypes.CDLL(str(path))
        self.functions.bench_version.restype = ctypes.c_char_p
        for name in ("bench_make", "bench_make_copy"):
            if hasattr(self.functions, name):
                getattr(self.functions, name).restype = ctypes.c_void_p
        for name in ("bench_run", "bench_fetch", "bench_free"):
            if hasattr(self.functions, name):
                getattr(self.functions, name).argtypes = [ctypes.c_void_p]
                getattr(self.functions, name).restype = None
        self.version = self.functions.bench_version().decode()

    def make(self, name: str, inputs: Inputs, outputs: Outputs) -> Native | None:
        handle = self.functions.bench_make(ctypes.byref(problem_of(inputs, outputs)))
        return Native(name, self.functions, handle) if handle else None

    def copies(self, inputs: Inputs, outputs: Outputs) -> list[Native]:
        """Each kind of copy of the bytes that the pass has to move: the upper limits of its speed."""
        if inputs.point.form == "torch-both":  # two passes
            return []
        problem: Problem = problem_of(inputs, outputs)
        handles = {which: self.functions.bench_make_copy(ctypes.byref(problem), which.encode()) for which in COPIES}
        return [Native(f"copy:{which}", self.functions, handle) for which, handle in handles.items() if handle]


def onnx_model(inputs: Inputs) -> bytes | None:
    """A model of one node with constant parameters; None if ONNX Runtime has no operator for the point."""
    from onnx import TensorProto, helper, numpy_helper

    point = inputs.point
    types = {"f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "f16": TensorProto.FLOAT16}
    if point.form not in ("forward", "residual") or point.dtype not in types:
        return None
    dtype, shape = types[point.dtype], [point.rows, point.cols]
    names = ["x", "weight"] if point.kind == "rms" else ["x", "weight", "bias"]
    operator = "RMSNormalization" if point.kind == "rms" else "LayerNormalization"
    # SkipLayerNormalization takes several times as long (docs/lab/README.md, "How rivals and copies are measured").
    if point.form == "residual":
        nodes = [helper.make_node("Add", ["x", "residual"], ["sum"])]
        nodes.append(helper.make_node(operator, ["sum", *names[1:]], ["y"], epsilon=EPS, axis=-1))
        names, outputs = [*names, "residual"], ["y", "sum"]
    else:
        nodes, outputs = [helper.make_node(operator, names, ["y"], epsilon=EPS, axis=-1)], ["y"]
    parameters = [name for name in names if name in ("weight", "bias")]
    constants = [
        numpy_helper.from_array(getattr(inputs, name).astype(STORED[point.dtype]), name) for name in parameters
    ]
    taken, given = (
        [helper.make_tensor_value_info(name, dtype, shape) for name in tensors if name not in parameters]
        for tensors in (names, outputs)
    )
    graph = helper.make_graph(nodes, "norm", taken, given, constants)
    opsets = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def onnxruntime(inputs: Inputs, outputs: Outputs) -> Python | None:
    import onnxruntime as ort

    point = inputs.point
    model = onnx_model(inputs)
    if model is None:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = inputs.threads, 1, 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC  # does not fuse the two nodes
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no other common class
        if "NOT_IMPLEMENTED" in str(error) or "NotImplemented" in type(error).__name__:
            return None
        raise
    stored = STORED[point.dtype]
    binding = session.io_binding()
    shape = (point.rows, point.cols)
    for node in session.get_inputs():
        binding.bind_input(node.name, "cpu", 0, stored, shape, getattr(inputs, node.name).ctypes.data)
    for node in session.get_outputs():
        binding.bind_output(node.name, "cpu", 0, stored, shape, getattr(outputs, node.name).ctypes.data)
    rival = Python("onnxruntime", lambda: session.run_with_iobinding(binding))
    rival.kept = (session, binding)
    return rival


def torch_tensor(values: np.ndarray, dtype: str):
    import torch

    tensor = torch.from_numpy(values.view(np.int16) if dtype == "bf16" else values)
    return tensor.view(torch.bfloat16) if dtype == "bf16" else tensor


def through_torch(inputs: Inputs, outputs: Outputs) -> list[Python]:
    """The modules of torch.nn and evenorm.torch, called from Python: a forward pass, or forward and backward."""
    import torch

    import evenorm.torch

    point, backward = inputs.point, inputs.point.form == "torch-both"
    torch.set_num_threads(inputs.threads)
    name = "LayerNorm" if point.kind == "layer" else "RMSNorm"
    dy = torch_tensor(inputs.dy, point.dtype).reshape(point.rows, point.cols) if backward else None
    rivals = []
    for library, namespace in (("evenorm", evenorm.torch), ("torch", torch.nn)):
        x = torch_tensor(inputs.x, point.dtype).reshape(point.rows, point.cols).requires_grad_(backward)
        module = getattr(namespace, name)(point.cols, eps=EPS, dtype=x.dtype)
        with torch.no_grad():
            module.weight.copy_(torch_tensor(inputs.weight, inputs.parameters))
            if point.kind == "layer":
                module.bias.copy_(torch_tensor(inputs.bias, inputs.parameters))
        rivals.append(torch_rival(library, module, x, dy, outputs))
    return rivals


def torch_rival(name: str, module, x, dy, outputs: Outputs) -> Python:
    import torch

    results = {}

    def forward():
        with torch.no_grad():
            results["y"] = module(x)

    def both():
        for tensor in (x, module.weight, module.bias):
            tensor.grad = None
        results["y"] = module(x)
        results["y"].backward(dy)

    def fetch():
        found = {"y": results["y"]}
        if dy is not None:
            found = {"dx": x.grad, "dweight": module.weight.grad, "dbias": module.bias.grad}
        for field, tensor in found.items():
            array = getattr(outputs, field)
            flat = tensor.detach().contiguous().flatten()
            if array.dtype == np.uint16:
                array[:] = flat.view(torch.int16).numpy().view(np.uint16)
            else:
                array[:] = flat.to(torch.float32).numpy() if array.dtype == np.float32 else flat.numpy()

    return Python(name, forward if dy is None else both, fetch)

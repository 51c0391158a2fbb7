"""evenorm's operators in ONNX Runtime: the bits of the NumPy functions, threads, memory, shapes, errors, releases."""

import functools
import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import evenorm
from numpy_inputs import F64, all_same_bits, bias, normal, same_bits, weight

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import evenorm.onnx  # noqa: E402

TYPES = ["f32 f32", "f16 f16", "bf16 bf16", "f64 f64", "f16 f32", "bf16 f32"]  # of X, and of Weight and Bias
OUTPUTS = {"Layer": "y mean rstd", "AddLayer": "y sum mean rstd", "RMS": "y rstd", "AddRMS": "y sum rstd"}
# The operator, its attributes, and the shapes of X, Residual, Weight and Bias. Tasks share the largest ones.
CASES = [
    ("Layer", {}, (7, 5), None, None, (5,)),  # ONNX Runtime 1.17.0 cannot infer the type of y
    ("Layer", {"axes": [1, -1]}, (5, 6, 33), None, (5, 1, 1), (6, 33)),
    ("Layer", {"axes": [2], "zero_centered": 1}, (5, 6, 33), None, (6, 1), (5, 6, 33)),
    ("Layer", {"axes": [1]}, (4, 9, 17), None, None, None),
    ("AddLayer", {}, (0, 5), (0, 5), (5,), None),
    ("Layer", {"epsilon": 0.25}, (801, 3, 65), None, (65,), (3, 65)),
    ("AddLayer", {}, (801, 3, 65), (801, 3, 65), (65,), (65,)),
    ("AddLayer", {"axes": [1, 2], "zero_centered": 1}, (6, 7, 40), (1, 7, 40), (7, 40), (40,)),
    ("RMS", {"axes": [-2, 2], "epsilon": 0.25, "zero_centered": 1}, (5, 6, 33), None, (6, 1), (33,)),
    ("AddRMS", {"epsilon": 0.0}, (6, 7, 40), (6, 1, 40), (40,), (40,)),
    ("AddRMS", {}, (801, 3, 65), (3, 65), None, None),
    ("Group", {"num_groups": 4}, (3, 12, 5, 4), None, (12, 1, 1), (1, 12, 1, 1)),
    ("Group", {"num_groups": 2, "epsilon": 0.25}, (17, 8), None, (8,), None),
    ("Group", {"num_groups": 16}, (6, 16, 40, 41), None, (16, 1, 1), (16, 1, 1)),
]


def model_of(text, **constants):
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17, "evenorm": 1]> graph ' + text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in constants.items())
    return model.SerializeToString()


def session_of(model, threads=1, **options):
    settings = onnxruntime.SessionOptions()
    settings.register_custom_ops_library(evenorm.onnx.library())
    for name, value in (options | {"intra_op_num_threads": threads, "log_severity_level": 4}).items():
        setattr(settings, name, value)
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def arrays_of(case, types="f32 f32"):
    """X, Residual, Weight and Bias by name."""
    makers = zip("xrwb", [normal, bias, weight, bias], [0, 0, 1, 1], case[2:], strict=False)
    return {name: make(types.split()[i], *shape) for name, make, i, shape in makers if shape is not None}


def one_node(case, arrays, constant="", outputs=None):
    """A model of one operator, and its inputs but for the constant ones. Smaller types pass as float32."""
    end, dtype, wide = (11, "double", np.float64) if arrays["x"].dtype == F64 else (1, "float", np.float32)
    inputs = {name: a.astype(wide) for name, a in arrays.items() if name not in constant}
    outputs = (outputs or OUTPUTS.get(case[0], OUTPUTS["Layer"])).split()
    names = [(name + "_" * (name in inputs)) * (name in arrays) for name in "xrwb" if name != "r" or "Add" in case[0]]
    attributes = ", ".join(f"{key} = {json.dumps(value)}" for key, value in case[1].items())
    element = {name: onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in arrays.items()}
    types = ", ".join(f"{dtype}{list(a.shape)} {name}" for name, a in inputs.items())
    text = f"""({types}) => ({", ".join(f"{dtype}[] {y}" for y in outputs)}) {{
        {" ".join(f"{name}_ = Cast <to = {element[name]}> ({name})" for name in inputs)}
        {", ".join(f"{y}_" for y in outputs)} = evenorm.{case[0]}Normalization {f"<{attributes}>" * bool(attributes)}
          ({", ".join(names).rstrip(", ")})
        {" ".join(f"{y} = Cast <to = {end}> ({y}_)" for y in outputs)} }}"""
    return model_of(text, **{name: arrays[name] for name in constant if name in arrays}), inputs


def right(case, x, r=None, w=None, b=None):
    """The outputs, from the NumPy functions."""
    axes, eps = case[1].get("axes", [-1]), float(np.float32(case[1].get("epsilon", 1e-5)))  # epsilon is a float32
    if case[0] == "Group":
        w, b = (None if p is None else p.reshape(-1) for p in (w, b))
        y, *statistics = evenorm.group_norm(x, case[1]["num_groups"], w, b, eps, return_stats=True)
    else:
        norm = "layer_norm" if "Layer" in case[0] else "rms_norm"
        w, b = (None if p is None else p.reshape((1,) * (x.ndim - p.ndim) + p.shape) for p in (w, b))
        options = {"weight": w, "bias": b, "axis": axes, "eps": eps, "zero_centered": "zero_centered" in case[1]}
        if r is not None:
            x = getattr(evenorm, f"add_{norm}")(x, np.broadcast_to(r, x.shape), **options)[1]
        y, *statistics = getattr(evenorm, norm)(x, **options, return_stats=True)
        statistics = [np.expand_dims(s, axes) for s in statistics]
    return [a if x.dtype == F64 else a.astype(np.float32) for a in (y, *[x] * (r is not None), *statistics)]


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}{list(case[2:])}".replace(" ", ""))
def test_bits(case, types):
    arrays = arrays_of(case, types)
    expected = right(case, **arrays)
    for constant, outputs, threads in (("", None, 1), ("wb", "y", 2), ("wb", None, 2)):
        model, inputs = one_node(case, arrays, constant, outputs)
        assert all_same_bits(session_of(model, threads).run(None, inputs), expected[: len(outputs or expected)])


def test_shapes_may_change_from_run_to_run():
    some = ["9 65, 9 65, 65, 65", "9 65, 65, 65, 65", "9 65, 65, 1, 9 1", "3 65, 65, 1, 65", "2 3 65, 3 65, 1, 65"]
    cases = [("AddLayer", {}, *(tuple(map(int, shape.split())) for shape in shapes.split(","))) for shapes in some]
    types, node = "float[] x, float[] r, float[] w, float[] b", "y = evenorm.AddLayerNormalization (x, r, w, b)"
    session = session_of(model_of(f"({types}) => (float[] y) {{ {node} }}"))
    for case in cases + cases[::-1]:
        assert same_bits(session.run(None, arrays_of(case))[0], right(case, **arrays_of(case))[0])


@pytest.mark.parametrize("sessions", [1, 4])
def test_threads_run_sessions_at_once(sessions):
    x, w = normal("f32", 1200, 65), weight("f32", 65)
    nodes = [f"x{i + 1} = evenorm.LayerNormalization (x{i}, w)" for i in range(40)]
    model = model_of(f"(float[n, 65] x0) => (float[] x40) {{ {' '.join(nodes)} }}", w=w)
    expected = functools.reduce(lambda y, _: right(("Layer", {}), y, w=w)[0], nodes, x)
    opened = [session_of(model, 2) for _ in range(sessions)]

    def is_right(i):
        rows = [1, 2, 3, 1200][i % 31 % 4]
        return same_bits(opened[i % sessions].run(None, {"x0": x[:rows]})[0], expected[:rows])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_right, range(3000)))


@pytest.mark.parametrize("arena, pattern, reuse", [(1, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0)])
def test_memory_is_shared_only_where_it_may_be(arena, pattern, reuse):
    w, b = weight("f32", 16, 4), bias("f32", 16, 4)
    text = """(float[n, 16, 4] x, float[n, 16, 4] r) => (float[] y) {
      a = Neg (x) c = Neg (r)
      y0, s0 = evenorm.AddLayerNormalization <axes = [1, 2]> (a, c, w, b)
      y1, , r1 = evenorm.LayerNormalization (y0)
      y2, s2 = evenorm.AddRMSNormalization (y1, s0, w)
      y3 = evenorm.GroupNormalization <num_groups = 4> (y2)
      y4 = evenorm.LayerNormalization <axes = [1, 2]> (y3, y3)
      y5 = evenorm.AddLayerNormalization (y1, y1)
      y = Sum (y1, s2, y4, y5, r1) }"""
    options = {"enable_cpu_mem_arena": arena, "enable_mem_pattern": pattern, "enable_mem_reuse": reuse}
    session = session_of(model_of(text, w=w, b=b), 2, **options)
    for n in (700, 3, 3, 700, 700):
        x, r = normal("f32", n, 16, 4), normal("f32", n, 16, 4, seed=5)
        y0, s0, *_ = right(("AddLayer", {"axes": [1, 2]}), -x, -r, w, b)
        y1, _, r1 = right(("Layer", {}), y0)
        y2, s2, *_ = right(("AddRMS", {}), y1, s0, w)
        y3 = right(("Group", {"num_groups": 4}), y2)[0]
        y4 = right(("Layer", {"axes": [1, 2]}), y3, w=y3)[0]
        y5 = right(("AddLayer", {}), y1, y1)[0]
        assert same_bits(session.run(None, {"x": x, "r": r})[0], y1 + s2 + y4 + y5 + r1)


def test_shapes_are_known_before_a_run():
    text = "(float[n, 8] x) => (float[] y, float[] s, float[] m) { y, s, m = evenorm.AddLayerNormalization (x, x) }"
    inferred = ["n", 8] if tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 28) else []
    assert [output.shape for output in session_of(model_of(text)).get_outputs()] == [inferred, inferred, []]
    # Unknown sizes are not equal. When y1 is made, y0's memory is free, but too small.
    text = """(float[?, 8] x, float[?, 8] r) => (float[] y) {
      y0 = evenorm.LayerNormalization (x) most = ReduceMax <keepdims = 0> (y0) r0 = Add (r, most)
      y1 = evenorm.LayerNormalization (r0) y = Neg (y1) }"""
    x, r = normal("f32", 3, 8), normal("f32", 900, 8)
    expected = right(("Layer", {}), r + right(("Layer", {}), x)[0].max())[0]
    assert same_bits(session_of(model_of(text)).run(None, {"x": x, "r": r})[0], -expected)


ERRORS = [
    ("Layer", {"axes": 1}, [(3, 8)], "axes should name at least one axis"),
    ("Layer", {"epsilon": 1}, [(3, 8)], "the attribute epsilon has the wrong type"),
    ("Layer", {}, [(3, 0)], "at least one element"),
    ("Layer", {"axes": [0, 5]}, [()], r"axes is \(0, 5\), but x has 0 axes"),
    ("Layer", {}, [(3, 8), None, (8,), (7,)], r"bias has shape \(1, 7\)"),
    ("AddRMS", {}, [(3, 8), (2, 8)], r"residual has shape \(2, 8\), but x has \(3, 8\)"),
    ("AddLayer", {}, [(3, 8), (3, 1)], "residual has strides"),
    ("Group", {}, [(3, 8)], "num_groups is absent or less than 1"),
    ("Group", {"num_groups": 3}, [(4, 8)], "num_groups is 3, but x has 8 channels"),
    ("Group", {"num_groups": 2}, [(8,)], "num_groups is 2, but x has no axis of channels"),
    ("Group", {"num_groups": 2}, [(4, 8, 5), None, (2, 1)], "weight does not broadcast to x's shape"),
]


@pytest.mark.parametrize("operator, attributes, shapes, message", ERRORS)
def test_errors_name_the_argument(operator, attributes, shapes, message):
    arrays = arrays_of((operator, attributes, *shapes))
    with pytest.raises(Exception, match=message):
        session_of(one_node((operator, attributes), arrays)[0]).run(None, arrays)


IN_ANOTHER_RELEASE = """if True:
    import sys, onnxruntime, numpy as np
    for file in sys.argv[2:]:
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(sys.argv[1])
        case = np.load(file)
        session = onnxruntime.InferenceSession(case["model"].tobytes(), options, providers=["CPUExecutionProvider"])
        for y, right in zip(session.run(None, {n: case[n] for n in "xrwb" if n in case}), map(case.get, "0123")):
            assert y.dtype == right.dtype and y.shape == right.shape and y.tobytes() == right.tobytes(), file
    print(onnxruntime.__version__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("release", ["==1.16.3", "==1.17.0", "==1.20.1", "==1.24.4", "==1.27.0", ""])
def test_releases_of_onnx_runtime(release, tmp_path):
    packages = ["--target", tmp_path / "packages", f"onnxruntime{release}", "numpy<2" if release else "numpy"]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)
    files = [str(tmp_path / f"{i}.npz") for i in range(1, len(CASES))]
    for i, (case, types) in enumerate(zip(CASES[1:], itertools.cycle(TYPES), strict=False)):
        arrays = arrays_of(case, types)
        model, inputs = one_node(case, arrays, "wb" * (i % 2), "y" * (i % 3 == 0))
        outputs = dict(zip("0123", right(case, **arrays), strict=False))
        np.savez(files[i], model=np.frombuffer(model, np.uint8), **inputs, **outputs)
    command = [sys.executable, "-c", IN_ANOTHER_RELEASE, evenorm.onnx.library(), *files]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "packages")}
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    error = "evenorm's operators need ONNX Runtime 1.17 or later, but this is 1.16.3"
    assert error in done.stderr if "1.16" in release else done.stdout.startswith(release[2:] or "1."), done.stderr

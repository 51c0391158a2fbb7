"""Measures the layer norms of other runtimes, and rewrites their rows of docs/elsewhere.md.

    bench/elsewhere.py           installs the pinned runtimes into a temporary folder
    bench/elsewhere.py --here    uses the packages of this Python

An error is the largest |y - y*| in units of u (|gamma| max|xhat| + |beta|), where u is 2^-24 and y* is the layer norm in
80-bit floating point. x has 64 rows of 768 float32 columns: normally distributed, plus a mean of 0, 100, 10^4 and 10^6.
A row whose bits depend on its batch differs between the batch of 64 and a slice of 1, 2, 3, 5, 8, 16 or 33 rows.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

import machine

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "elsewhere.md"
PACKAGES = {
    "torch": "2.13.0",
    "onnxruntime": "1.31.1",
    "onnx": "1.23.2",
    "openvino": "2026.4.1",
    "jax": "0.10.2",
    "flax": "0.12.8",
    "keras": "3.15.1",
    "numpy": "2.4.6",
}
ROWS, COLS, EPS = 64, 768, 1e-5
MEANS = (0, 1e2, 1e4, 1e6)
SLICES = (1, 2, 3, 5, 8, 16, 33)
LOST = 2e6  # errors above it leave no digit that means anything


def torch_norm(gamma, beta):
    import torch

    weight, bias = torch.from_numpy(gamma), torch.from_numpy(beta)
    return lambda x: torch.nn.functional.layer_norm(torch.from_numpy(x), (COLS,), weight, bias, EPS).numpy()


def onnx_model(gamma, beta) -> bytes:
    """LayerNormalization of x + r. ONNX Runtime fuses both operators, but only if x has three axes."""
    from onnx import TensorProto, helper, numpy_helper

    x, r, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "rows", COLS]) for name in "xry")
    nodes = [
        helper.make_node("Add", ["x", "r"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "gamma", "beta"], ["y"], epsilon=EPS),
    ]
    parameters = [numpy_helper.from_array(gamma, "gamma"), numpy_helper.from_array(beta, "beta")]
    graph = helper.make_graph(nodes, "norm", [x, r], [y], parameters)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def onnxruntime_norm(gamma, beta, disabled=("SkipLayerNormFusion",)):
    import onnxruntime

    session = onnxruntime.InferenceSession(
        onnx_model(gamma, beta), providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled)
    )
    return lambda x: session.run(None, {"x": x[None], "r": 0 * x[None]})[0][0]


def reference_norm(gamma, beta):
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx_model(gamma, beta))
    return lambda x: evaluator.run(None, {"x": x[None], "r": 0 * x[None]})[0][0]


def openvino_norm(gamma, beta):
    import openvino

    core = openvino.Core()
    model = core.read_model(onnx_model(gamma, beta))
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda x: compiled({"x": x[None], "r": 0 * x[None]})[0][0].copy()


def compiled_by_jax(function):
    import jax
    import numpy as np

    compiled = jax.jit(function)
    return lambda x: np.asarray(compiled(x))


def linen_norm(gamma, beta, **options):
    from flax import linen

    module = linen.LayerNorm(epsilon=EPS, **options)
    return compiled_by_jax(lambda x: module.apply({"params": {"scale": gamma, "bias": beta}}, x))


def nnx_norm(gamma, beta):
    from flax import nnx

    module = nnx.LayerNorm(COLS, epsilon=EPS, rngs=nnx.Rngs(0))
    module.scale[...], module.bias[...] = gamma, beta
    return compiled_by_jax(module)


def standardize(gamma, beta):
    import jax

    return compiled_by_jax(lambda x: jax.nn.standardize(x, epsilon=EPS) * gamma + beta)


def keras_norm(gamma, beta):
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    import numpy as np

    layer = keras.layers.LayerNormalization(epsilon=EPS)
    layer.build((None, COLS))
    layer.set_weights([gamma, beta])
    return lambda x: np.asarray(layer(x))


RUNTIMES = {  # the first cell of a row: the package whose version counts, and its norm
    "PyTorch": ("torch", torch_norm),
    "ONNX Runtime": ("onnxruntime", onnxruntime_norm),
    "ONNX Runtime, add and norm fused": ("onnxruntime", functools.partial(onnxruntime_norm, disabled=())),
    "onnx.reference": ("onnx", reference_norm),
    "OpenVINO": ("openvino", openvino_norm),
    "flax.linen": ("flax", linen_norm),
    "flax.linen, slow variance": ("flax", functools.partial(linen_norm, use_fast_variance=False)),
    "flax.nnx": ("flax", nnx_norm),
    "jax.nn.standardize": ("jax", standardize),
    "Keras on JAX": ("keras", keras_norm),
}


def inputs(mean: float):
    import numpy as np

    random = np.random.default_rng(0)
    gamma = (1 + 0.3 * random.standard_normal(COLS)).astype(np.float32)
    beta = (0.2 * random.standard_normal(COLS)).astype(np.float32)
    return (random.standard_normal((ROWS, COLS)) + mean).astype(np.float32), gamma, beta


def error(y, x, gamma, beta) -> float:
    import numpy as np

    x, gamma, beta = (array.astype(np.longdouble) for array in (x, gamma, beta))
    centred = x - x.mean(1, keepdims=True)
    xhat = centred / np.sqrt((centred**2).mean(1, keepdims=True) + np.longdouble(EPS))
    unit = 2.0**-24 * (np.abs(gamma) * np.abs(xhat).max(1, keepdims=True) + np.abs(beta))
    return float((np.abs(y - (xhat * gamma + beta)) / unit).max())


def digits(value: float) -> str:
    if not value <= LOST:
        return "lost"
    return f"{value:.1f}" if value < 100 else f"{float(f'{value:.2g}'):,.0f}"


def row(name: str) -> list[str]:
    """The measured cells of a runtime: version and machine, errors, and whether the bits depend on the batch."""
    package, make = RUNTIMES[name]
    errors, same = [], True
    for mean in MEANS:
        x, gamma, beta = inputs(mean)
        norm = make(gamma, beta)
        y = norm(x)
        errors.append(digits(error(y, x, gamma, beta)))
        same = same and all((norm(x[:count]) == y[:count]).all() for count in SLICES)
    cpu = machine.describe()["name"]
    return [f"{PACKAGES[package]}, {cpu}, {datetime.date.today()}", *errors, "yes" if same else "no"]


def rewrite() -> None:
    """Writes the measured cells: the second of a row, and the last five."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    for package, version in PACKAGES.items():
        if (found := importlib.metadata.version(package)).split("+")[0] != version:
            sys.exit(f"elsewhere.py: {package} is {found}, but this script is for {version}")
    for name in RUNTIMES:
        (index,) = (i for i, line in enumerate(lines) if line.startswith(f"| {name} |"))
        cells = lines[index].strip("| ").split(" | ")
        measured, *rest = row(name)
        lines[index] = f"| {' | '.join([name, measured, *cells[2:-5], *rest])} |"
        print(lines[index])
    DOCUMENT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--here", action="store_true", help="use the packages of this Python")
    if parser.parse_args().here:
        return rewrite()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder) / "bin" / "python"
        pinned = [f"{package}=={version}" for package, version in PACKAGES.items()]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned], check=True)
        subprocess.run([python, __file__, "--here"], check=True)


if __name__ == "__main__":
    main()

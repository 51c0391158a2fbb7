"""`python -m evenorm.onnx`: convert or inspect an ONNX file."""

import argparse
import json
import sys
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ._convert import convert, load
from ._inspect import inspect

EXAMPLES = """examples:
  python -m evenorm.onnx convert model.onnx -o converted.onnx
  python -m evenorm.onnx inspect model.onnx x.npy
  python -m evenorm.onnx inspect model.onnx inputs.npz
  python -m evenorm.onnx inspect model.onnx input_ids=ids.npy attention_mask=1x128
"""
INPUTS = "a .npy file or a shape like 1x128 for each input, as NAME=..., or a .npz file with all of them"


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m evenorm.onnx", description=__doc__, epilog=EXAMPLES, formatter_class=form
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("convert", help="replace the norms by evenorm's operators")
    one.add_argument("model")
    one.add_argument("-o", "--output", required=True, help="the converted file")
    two = commands.add_parser("inspect", help="measure the norms on your own inputs")
    two.add_argument("model")
    two.add_argument("inputs", nargs="+", help=INPUTS)
    two.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        if options.command == "convert":
            conversion = convert(options.model)
            conversion.save(options.output)
            print(conversion)
            return 0
        inputs, random = _inputs(options.model, options.inputs)
        found = inspect(options.model, inputs)
    except Exception as error:  # ONNX Runtime's errors have no common class
        if not isinstance(error, OSError | ValueError) and not type(error).__module__.startswith("onnxruntime"):
            raise
        parser.exit(2, f"{parser.prog}: {error}\n")
    note = f"random inputs: {', '.join(random)}" if random else ""
    print(json.dumps({**json.loads(found.json()), "random": random}) if options.json else f"{found}\n{note}".rstrip())
    return 0


def _inputs(path: str, given: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The model's inputs, and the names of those that are random."""
    graph = load(path)[0].graph
    constants = {one.name for one in graph.initializer}
    wanted = {one.name: one.type.tensor_type.elem_type for one in graph.input if one.name not in constants}
    inputs: dict[str, Any] = {}
    random, generator = [], np.random.default_rng(0)
    for text in given:
        name, _, value = text.rpartition("=")
        if value.endswith(".npz"):
            inputs.update(np.load(value))
            continue
        name = name or next(iter(wanted), "")
        if name not in wanted:
            raise ValueError(f"{path} has no input {name}; its inputs are {', '.join(wanted)}")
        if value.endswith(".npy"):
            inputs[name] = np.load(value)
            continue
        if not all(size.isdecimal() for size in value.split("x")):
            raise ValueError(f"{text} is neither a .npy or .npz file nor a shape like 1x128")
        inputs[name] = _random(generator, wanted[name], [int(size) for size in value.split("x")])
        random.append(name)
    if missing := [name for name in wanted if name not in inputs]:
        raise ValueError(f"no value for {', '.join(missing)}: give {INPUTS}")
    return inputs, random


def _random(generator: np.random.Generator, dtype: int, shape: list[int]) -> Any:
    """Normally distributed numbers, integers below 100, or True."""
    if dtype in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        return generator.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(dtype))
    if dtype == TensorProto.BOOL:
        return np.ones(shape, bool)
    return generator.integers(100, size=shape).astype(helper.tensor_dtype_to_np_dtype(dtype))


if __name__ == "__main__":
    sys.exit(main())

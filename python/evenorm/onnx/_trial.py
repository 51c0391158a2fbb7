"""Decides whether a piece computes a norm: runs it in float64 on random rows and compares it with the formula."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ._graph import Types, axes_of
from ._pieces import REDUCTIONS, RESHAPES, Piece

Array = np.ndarray[Any, Any]
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
# Constants such as 1/n and eps are rounded to the model's type. n - 1 in place of n differs by more up to 500,000 columns.
TOLERANCE = 1e-6
MOST_COLS = 2**16  # that are tried
RANKS = (3, 2, 4)  # tried if the number of x's axes is not known
FEW_ROWS, FEW_COLS = (2, 3), (6, 11)  # sizes of axes that are tried if the model allows any


@dataclass(frozen=True)
class Norm:
    """y = norm(x) * weight + bias."""

    kind: str  # "Layer" or "RMS"
    axes: tuple[int, ...]
    eps: float
    weight: ir.Value | None
    bias: ir.Value | None


def settle(piece: Piece, types: Types, opset: int) -> Norm | str:
    """The norm that the piece computes, or why it computes none that evenorm has."""
    try:
        known = types.shape(piece.x)
        axes = _axes(piece, known)
        if axes is None:
            return "its mean and variance have other axes, or axes that the model computes"
        if len(piece.parameters) > 2:
            return "it has more inputs than a weight and a bias"
        if any(_is_larger(types.shape(one), known, axes) for one in piece.parameters):
            return "its weight or bias may be larger than x"
        fits = [rank for rank in RANKS if -rank <= min(axes) and max(axes) < rank]
        ranks = fits if known is None else [len(known)]
        if not ranks:
            return "its number of axes is not known"
        shapes = [shape for rank in ranks for shape in _shapes(piece, types, axes, rank)]
        run, least = _runner(piece, opset), math.inf
        for kind, (weight, bias) in itertools.product(("Layer", "RMS"), _roles(piece.parameters)):
            found = _settle(run, Norm(kind, axes, 0.0, weight, bias), types, shapes)
            if isinstance(found, Norm):
                return found if kind == "Layer" or bias is None else "it is an RMS norm with a bias"
            least = min(least, found)
        return f"it differs by {least:.2g} from the nearest norm"
    except Exception as error:  # the piece may not accept what is tried
        return f"it raised {type(error).__name__} when tried: {error}"[:200]


def _is_larger(shape: Any, x: Any, axes: tuple[int, ...]) -> bool:
    """Whether a parameter broadcasts x on an axis, as far as sizes are known. ONNX calls unknown ones unk__1 and so on."""
    for axis, size in enumerate(reversed(shape or []), 1):
        known = x[-axis] if x is not None and axis <= len(x) else None
        both_unknown = all(one is None or str(one).startswith("unk__") for one in (size, known))
        if not (size in (1, known) or both_unknown or (-axis in axes and type(known) is not int)):
            return True
    return False


def types_differ(types: Types, x: ir.Value, y: ir.Value, *parameters: ir.Value | None) -> str | None:
    """Why evenorm has no operator for these types, if so."""
    of_x, of_y = types.dtype(x), types.dtype(y)
    given = {types.dtype(one) for one in parameters if one is not None}
    if of_x not in FLOATS or of_y not in (of_x, 0):
        return f"x has type {_name(of_x)} and y {_name(of_y)}"
    if len(given) > 1 or not given <= {of_x, *({TensorProto.FLOAT} if of_x != TensorProto.DOUBLE else ())}:
        return f"x has type {_name(of_x)}, but weight and bias {' and '.join(map(_name, sorted(given)))}"
    return None


def _name(dtype: int) -> str:
    return str(TensorProto.DataType.Name(dtype).lower())


def _axes(piece: Piece, known: Any) -> tuple[int, ...] | None:
    """The axes of all reductions, from the end if x's number of axes is known."""
    found = set()
    for node in piece.nodes:
        if node.op_type in REDUCTIONS:
            axes = axes_of(node)
            if not axes:
                return None
            rank = 0 if known is None else len(known)
            found.add(tuple(sorted(axis - rank if axis >= 0 else axis for axis in axes)))
    return found.pop() if len(found) == 1 else None


def _roles(parameters: list[ir.Value]) -> Iterator[tuple[ir.Value | None, ir.Value | None]]:
    first, second = (*parameters, None, None)[:2]
    yield from dict.fromkeys([(first, second), (second, first)])


def _shapes(piece: Piece, types: Types, axes: tuple[int, ...], rank: int) -> Iterator[tuple[int, ...]]:
    """Shapes of x to try, which must suit the parameters and the sizes in the piece."""
    known = [one if isinstance(one, int) else None for one in types.shape(piece.x) or [None] * rank]
    needed: list[int | None] = [None] * rank
    sizes = [types.shape(one) or [] for one in piece.parameters]
    sizes += [list[Any](shape) for shape in piece.sizes.values() if len(shape) == rank]
    for shape in sizes:
        for axis, size in enumerate(reversed(shape), 1):
            if isinstance(size, int) and size > 1:
                needed[-axis] = size
    scalars = [float(value.flat[0]) for value in piece.fixed.values() if value.size == 1]
    counts = [round(one if one > 1 else 1 / one) for one in scalars if 2 < one < MOST_COLS or 1 / MOST_COLS < one < 0.4]
    normalised = {axis % rank for axis in axes}
    for number, cols in enumerate((*counts, *FEW_COLS)):
        shape = []
        for axis in range(rank):
            few = cols if axis in normalised else FEW_ROWS[axis % 2]
            size = known[axis]
            shape.append(needed[axis] or (few if size is None else size if axis in normalised else min(size, few)))
        yield tuple(shape)
        if number == 0 and all(known[axis] or needed[axis] for axis in normalised):
            return


Run = Callable[[Array, dict[ir.Value, Array]], Array]


def _runner(piece: Piece, opset: int) -> Run:
    """A function that runs the piece in float64."""
    nodes = [ir.serde.serialize_node(node) for node in piece.nodes]
    for node in nodes:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in FLOATS:
                attribute.i = TensorProto.DOUBLE
    fixed = {value.name: t if t.dtype.kind in "iu" else t.astype(np.float64) for value, t in piece.fixed.items()}
    for node in nodes:  # sizes that the model computes: Reshape infers them, Expand keeps them
        for value, shape in piece.sizes.items() if node.op_type in RESHAPES else ():
            if node.input[1] == value.name:
                unknown = -1 if node.op_type == "Reshape" else 1
                node.input[1] += node.op_type
                fixed[node.input[1]] = np.array([unknown if one is None else one for one in shape])
    names = [piece.x.name, *fixed, *(value.name for value in piece.parameters)]
    function = helper.make_function("trial", "piece", names, [piece.y.name], nodes, [helper.make_opsetid("", opset)])
    evaluator = ReferenceEvaluator(function)

    def run(x: Array, parameters: dict[ir.Value, Array]) -> Array:
        given = {value.name: tensor for value, tensor in parameters.items()}
        with np.errstate(all="ignore"):
            return np.asarray(evaluator.run(None, {piece.x.name: x, **fixed, **given}, {})[0])

    return run


def _settle(run: Run, norm: Norm, types: Types, shapes: list[tuple[int, ...]]) -> Norm | float:
    """The norm with its eps, or by how much the piece differs from it."""
    random = np.random.default_rng(0)
    x = 1e-18 * random.standard_normal(shapes[0])
    plain = {one: np.full(_sized(types, one, x.shape), one is norm.weight, np.float64) for one in _given(norm)}
    norm = replace(norm, eps=_eps_of(norm, x, run(x, plain)))
    small = math.sqrt(norm.eps) or 1e-3
    for shape in shapes:
        for scale, mean in ((1, 0), (1, 3), (1e3, -2e3), (small, 0), (small / 5, small / 2)):
            x = mean + scale * random.standard_normal(shape)
            parameters = {one: random.standard_normal(_sized(types, one, shape)) for one in _given(norm)}
            difference = _difference(norm, x, run(x, parameters), parameters)
            if not difference < TOLERANCE:
                return difference if difference == difference else math.inf
    return norm


def _given(norm: Norm) -> list[ir.Value]:
    return [one for one in (norm.weight, norm.bias) if one is not None]


def _sized(types: Types, parameter: ir.Value, x: tuple[int, ...]) -> tuple[int, ...]:
    """The parameter's shape, with x's sizes where it is not known."""
    known = types.shape(parameter)
    if known is None or len(known) > len(x):
        raise ValueError(f"the shape of {parameter.name} should be known, and broadcast to that of x")
    return tuple(
        one if isinstance(one, int) else size for one, size in zip(known, x[len(x) - len(known) :], strict=True)
    )


def moments(x: Array, kind: str, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """What a norm subtracts from the rows of x, and the mean of the squares of the difference."""
    mean = np.zeros(()) if kind == "RMS" else x.mean(axes, keepdims=True)
    return mean, np.square(x - mean).mean(axes, keepdims=True)


def _eps_of(norm: Norm, x: Array, y: Array) -> float:
    """The eps with which tiny rows x are normalised to y."""
    if y.shape != x.shape:
        return 0.0
    mean, var = moments(x, norm.kind, norm.axes)
    with np.errstate(all="ignore"):
        eps = float(np.median(np.square((x - mean) / y) - var))
    return float(np.float32(eps)) if 1e-34 < eps < 1 else 0.0


def _difference(norm: Norm, x: Array, y: Array, parameters: dict[ir.Value, Array]) -> float:
    """The largest difference of y from the norm, relative to |weight| max|xhat| + |bias|."""
    if y.shape != x.shape:
        return math.inf
    mean, var = moments(x, norm.kind, norm.axes)
    weight, bias = (parameters.get(one, fill) for one, fill in ((norm.weight, np.ones(())), (norm.bias, np.zeros(()))))
    xhat = (x - mean) / np.sqrt(var + norm.eps)
    size = np.abs(weight) * np.abs(xhat).max(norm.axes, keepdims=True) + np.abs(bias)
    return float(np.max(np.abs(y - (xhat * weight + bias)) / size))

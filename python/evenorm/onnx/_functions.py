"""The operators' bodies in standard operators. A converted file has them for runtimes without evenorm's library."""

import onnx
from onnx import TensorProto
from onnx.parser import parse_function

DOMAIN = "evenorm"
HEADS = {  # and all outputs, of which a file may have only the first ones
    "LayerNormalization": ("<axes, epsilon> (X, Weight, Bias)", ("Y", "Mean", "Rstd")),
    "AddLayerNormalization": ("<axes, epsilon> (X, Residual, Weight, Bias)", ("Y", "Sum", "Mean", "Rstd")),
    "RMSNormalization": ("<axes, epsilon> (X, Weight)", ("Y", "Rstd")),
    "AddRMSNormalization": ("<axes, epsilon> (X, Residual, Weight)", ("Y", "Sum", "Rstd")),
    "GroupNormalization": ("<num_groups, epsilon> (X, Weight, Bias)", ("Y", "Mean", "Rstd")),
}
# x, weight and bias are the inputs in the type of the computation.
GROUPS = """groups = Constant <value_int: int = @num_groups> ()
  one = Constant <value_ints = [1]> ()
  number = Reshape (groups, one)
  whole = Constant <value_ints = [0]> ()
  rest = Constant <value_ints = [-1]> ()
  sizes = Concat <axis = 0> (whole, number, rest)
  rows = Reshape ({x}, sizes)"""
CENTRED = """{mean} = ReduceMean {of_rows}
  centred = Sub ({rows}, {mean})"""
NORMALISED = """{squared}
  var = ReduceMean {of_square}
  sum_eps = Add (var, eps)
  {std} = Sqrt (sum_eps)
  {xhat} = Div ({centred}, {std})"""
UNGROUPED = """shape = Shape (X)
  xhat = Reshape (by_group, shape)
  pair = Concat <axis = 0> (whole, rest)
  Mean = Reshape (mean, pair)
  std = Reshape (std_by_group, pair)"""
# ONNX Runtime fuses norms with a Pow. In files with other types, this fails or drops epsilon.
FUSED = """two = Constant <value = float {{2.0}}> ()
  square = Pow ({0}, two)"""
UNFUSED = "square = Mul ({0}, {0})"


def can_cast(opset: int) -> bool:
    """Whether a body can convert between types, which it does if X or Weight is neither float32 nor float64."""
    return opset >= 15


def function(name: str, opset: int, types: set[int], eps: float, outputs: int, fused: bool) -> onnx.FunctionProto:
    """The body of the operator `name` for a model of this opset.

    types has the types of X and Weight of the nodes with this operator: only float64, or others. Before opset 12, a
    constant cannot come from an attribute, and all nodes have this eps. outputs is the largest number of a node's.
    """
    wide = TensorProto.DOUBLE if TensorProto.DOUBLE in types else TensorProto.FLOAT
    casts, grouped, rms = types != {wide}, name.startswith("Group"), "RMS" in name
    x = "Sum" if name.startswith("Add") else "X"
    lines = ["Sum = Add (X, Residual)"] if x == "Sum" else []
    names = {"x": x, "weight": "Weight", "bias": "Bias"}
    if casts:
        given = [item for item in names.items() if not (rms and item[0] == "bias")]
        lines += [f"{new} = Cast <to = {wide}> ({old})" for new, old in given]
        names = {new: new for new in names}
    lines += [
        f"float_eps = Constant <{'value_float: float = @epsilon' if opset >= 12 else f'value = float {{{eps}}}'}> ()"
    ]
    lines += [f"eps = Cast <to = {wide}> (float_eps)"]
    lines += [GROUPS.format(**names)] if grouped else []
    over = " = [2]" if grouped else ": ints = @axes"
    lines += [f"axes = Constant <value_ints{over}> ()"] if opset >= 18 else []
    reduced = "({0}, axes)" if opset >= 18 else f"<axes{over}> ({{0}})"
    rows, mean = "rows" if grouped else names["x"], "mean" if grouped else "Mean"
    lines += [] if rms else [CENTRED.format(mean=mean, rows=rows, of_rows=reduced.format(rows))]
    lines += [
        NORMALISED.format(
            squared=(FUSED if fused else UNFUSED).format(rows if rms else "centred"),
            centred=rows if rms else "centred",
            of_square=reduced.format("square"),
            xhat="by_group" if grouped else "xhat",
            std="std_by_group" if grouped else "std",
        )
    ]
    lines += [UNGROUPED] if grouped else []
    y = "y" if casts else "Y"
    lines += [f"{y if rms else 'scaled'} = Mul (xhat, {names['weight']})"]
    lines += [] if rms else [f"{y} = Add (scaled, {names['bias']})"]
    lines += ["Y = CastLike (y, X)"] if casts else []
    lines += ["Rstd = Reciprocal (std)"] if "Rstd" in HEADS[name][1][:outputs] else []
    body, head = "\n  ".join(lines), f"{name} {HEADS[name][0]} => ({', '.join(HEADS[name][1][:outputs])})"
    return parse_function(f'<domain: "{DOMAIN}", opset_import: ["" : {opset}]>\n{head} {{\n  {body}\n}}')

#!/bin/sh
# ONNX Runtime on a CPU: a float16 model divides 300 by the root of a number that it returns as infinite, and gets 1.
#
# ONNX Runtime 1.31.1. Operators without a float16 kernel run in float32 between two casts, and casts between two of
# them are dropped, even with all optimisations disabled. So a composed norm of rows of 300, whose squares overflow
# float16, gives 1. The mean of squares is rounded to float16 if it is an output, and is infinite there. The ONNX
# reference implementation gives 0. So a float16 model that works in ONNX Runtime on a CPU can overflow in every other
# place.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

nodes = [
    helper.make_node("Mul", ["x", "x"], ["squares"]),
    helper.make_node("ReduceMean", ["squares"], ["mean"], axes=[1]),
    helper.make_node("Sqrt", ["mean"], ["root"]),
    helper.make_node("Div", ["x", "root"], ["y"]),
]
sizes = {"x": 4, "y": 4, "mean": 1}
x, y, mean = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, size]) for name, size in sizes.items())
graph = helper.make_graph(nodes, "norm", [x], [y, mean])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
for name, runtime in (("ONNX Runtime", session), ("onnx.reference", ReferenceEvaluator(model))):
    y, mean = runtime.run(None, {"x": np.full((1, 4), 300, np.float16)})
    print(f"{name}: 300 / sqrt({mean[0, 0]}) = {y[0, 0]}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
ONNX Runtime: 300 / sqrt(inf) = 1.0
onnx.reference: 300 / sqrt(inf) = 0.0
END

#!/bin/sh
# onnx.reference mixes the batch's own statistics into BatchNormalization of opset 9, as in training.
#
# onnx 1.23.2. In opset 9 a node with one output is in inference mode: y = (x - mean) / sqrt(var + eps) with the mean
# and variance that are given. ONNX Runtime 1.31.1 computes that. The reference takes momentum times these plus 1 -
# momentum times the batch's, also with the default momentum of 0.9. Opset 15 is right.
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

names = ["x", "scale", "bias", "mean", "var"]
inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 1] if name == "x" else [1]) for name in names]
output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 1])
feeds = {name: np.array([value], np.float32) for name, value in zip(names[1:], (1, 0, 0, 1))}
feeds["x"] = np.array([[10], [30]], np.float32)
for opset, attributes in ((9, {}), (9, {"momentum": 0.5}), (15, {})):
    node = helper.make_node("BatchNormalization", names, ["y"], epsilon=0.0, **attributes)
    graph = helper.make_graph([node], "norm", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, runtime in (("ONNX Runtime", session), ("onnx.reference", ReferenceEvaluator(model))):
        y = runtime.run(None, feeds)[0].ravel()
        print(f"opset {opset}, {attributes}, {name}: {y[0]:.2f} and {y[1]:.2f}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
opset 9, {}, ONNX Runtime: 10.00 and 30.00
opset 9, {}, onnx.reference: 2.42 and 8.48
opset 9, {'momentum': 0.5}, ONNX Runtime: 10.00 and 30.00
opset 9, {'momentum': 0.5}, onnx.reference: 0.00 and 2.81
opset 15, {}, ONNX Runtime: 10.00 and 30.00
opset 15, {}, onnx.reference: 10.00 and 30.00
END

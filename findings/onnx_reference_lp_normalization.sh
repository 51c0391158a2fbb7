#!/bin/sh
# onnx.reference's LpNormalization with p = 1 divides by the sum of the elements, not by that of their magnitudes.
#
# onnx 1.23.2. [1, -1, 2, -4] has the sum -2 and the 1-norm 8. The reference gives [-0.5, 0.5, -1, 2], in which all
# signs are wrong. ONNX Runtime 1.31.1 gives [0.125, -0.125, 0.25, -0.5]. Rows without negative elements are right.
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

x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
graph = helper.make_graph([helper.make_node("LpNormalization", ["x"], ["y"], axis=-1, p=1)], "norm", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
for name, runtime in (("ONNX Runtime", session), ("onnx.reference", ReferenceEvaluator(model))):
    print(f"{name}:", runtime.run(None, {"x": np.array([[1, -1, 2, -4]], np.float32)})[0].tolist())
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
ONNX Runtime: [[0.125, -0.125, 0.25, -0.5]]
onnx.reference: [[-0.5, 0.5, -1.0, 2.0]]
END

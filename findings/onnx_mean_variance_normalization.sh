#!/bin/sh
# ONNX's MeanVarianceNormalization of a constant row is NaN in ONNX Runtime and 0 in the reference implementation.
#
# ONNX Runtime 1.31.1 and onnx 1.23.2. ONNX defines the operator by a function that adds 1e-9 to the standard deviation
# and takes the variance as E[x^2] - E[x]^2. ONNX Runtime's kernel centres x and adds nothing: constant rows are 0 / 0,
# and rows of +-1e-9 become +-1 instead of +-0.5. The reference follows the definition, so rows of mean 10^4 and
# standard deviation 1 get another scale. evenorm gives 0 for constant rows with eps = 0; docs/elsewhere.md has the
# call.
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

x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 768]) for name in "xy")
graph = helper.make_graph([helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[1])], "norm", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
signs = np.where(np.arange(768) % 2, -1, 1)
normal = np.random.default_rng(0).standard_normal(768)
for name, runtime in (("ONNX Runtime", session), ("onnx.reference", ReferenceEvaluator(model))):
    rows = (np.full(768, 5), 1e-9 * signs, normal + 10000)
    constant, small, far = (runtime.run(None, {"x": row.astype(np.float32)[None]})[0][0] for row in rows)
    scaled = bool(abs(far.astype(np.float64).std() - 1) < 0.1)
    print(f"{name}: 5 becomes {constant[0]}, 1e-9 {small[0]:.2f}; standard deviation of 1 at mean 10^4: {scaled}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
ONNX Runtime: 5 becomes nan, 1e-9 1.00; standard deviation of 1 at mean 10^4: True
onnx.reference: 5 becomes 0.0, 1e-9 0.50; standard deviation of 1 at mean 10^4: False
END

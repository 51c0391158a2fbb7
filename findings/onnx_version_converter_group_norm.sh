#!/bin/sh
# onnx.version_converter turns GroupNormalization of opset 18 into a model of opset 21 that ONNX Runtime cannot load.
#
# onnx 1.23.2. In opset 18 scale and bias have an element per group, in opset 21 one per channel. The converter changes
# only the number of the opset, without an error, and onnx.checker accepts the result. ONNX Runtime 1.31.1 refuses it.
# evenorm.group_norm takes parameters per channel.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, version_converter

x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4, 6]) for name in "xy")
parameters = [numpy_helper.from_array(np.array([1, 3], np.float32), name) for name in ("scale", "bias")]
node = helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=2)
graph = helper.make_graph([node], "norm", [x], [y], parameters)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
converted = version_converter.convert_version(model, 21)
onnx.checker.check_model(converted)
for model in (model, converted):
    opset, dims = model.opset_import[0].version, [list(tensor.dims) for tensor in model.graph.initializer]
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        result = "loads"
    except Exception as error:
        result = type(error).__name__
    print(f"opset {opset}, scale and bias {dims}: {result}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
opset 18, scale and bias [[2], [2]]: loads
opset 21, scale and bias [[2], [2]]: Fail
END

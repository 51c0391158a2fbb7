#!/bin/sh
# A node that leaves out trailing outputs of a local function passes onnx.checker, but neither its full check nor ONNX
# Runtime accepts it.
#
# onnx 1.23.2 and onnxruntime 1.31.1. A node may leave out trailing optional outputs of an operator. If a local function
# defines the operator, the inference of shapes gives the node as many outputs as the function has: check_model with
# full_check=True and ONNX Runtime's InferenceSession fail with an index out of range. With an empty name in place of
# the output, both accept the model. So evenorm.onnx.convert writes empty names.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.parser import parse_function

function = parse_function("""<domain: "example", opset_import: ["" : 18]>
Normalise (X) => (Y, Mean) {
  Mean = ReduceMean (X)
  Y = Sub (X, Mean)
}""")
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
opsets = [helper.make_opsetid("", 18), helper.make_opsetid("example", 1)]
for outputs in (["y"], ["y", ""]):
    node = helper.make_node("Normalise", ["x"], outputs, domain="example")
    graph = helper.make_graph([node], "norm", [x], [y])
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    data = model.SerializeToString()
    for name, use in (
        ("check", lambda: onnx.checker.check_model(model)),
        ("full check", lambda: onnx.checker.check_model(model, full_check=True)),
        ("ONNX Runtime", lambda: onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])),
    ):
        try:
            use()
            print(outputs, name, "accepts it")
        except Exception as error:
            print(outputs, name, "refuses it:", "index out of range" if "out of" in str(error) else error)
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
['y'] check accepts it
['y'] full check refuses it: index out of range
['y'] ONNX Runtime refuses it: index out of range
['y', ''] check accepts it
['y', ''] full check accepts it
['y', ''] ONNX Runtime accepts it
END

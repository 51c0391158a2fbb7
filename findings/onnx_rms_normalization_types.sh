#!/bin/sh
# onnx's full check refuses an RMSNormalization of float16 rows with a float32 scale, whatever type Y has, although the
# operator has these types.
#
# onnx 1.23.2 with onnxruntime 1.31.1. RMSNormalization of opset 23 has a type T of X, and a type V of scale and Y. With X in
# float16 and scale in float32, Y is therefore float32. But the inference of types gives Y the type of X. So check_model
# with full_check=True calls a Y of float32 inconsistent with X, and one of float16 inconsistent with scale. ONNX Runtime
# loads neither. evenorm's operators have scales of float32 beside rows of float16, and their Y has X's type.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import onnx
import onnxruntime
from onnx.parser import parse_model

schema = onnx.defs.get_schema("RMSNormalization", 23)
print(*(f"{one.name}: {one.type_str}" for one in (*schema.inputs, *schema.outputs)))
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
for y in ("float", "float16"):
    model = parse_model(f"""<ir_version: 10, opset_import: ["": 23]>
norm (float16[2,8] X, float[8] scale) => ({y}[2,8] Y) {{ Y = RMSNormalization (X, scale) }}""")
    for name, use in (
        ("full check", lambda model: onnx.checker.check_model(model, full_check=True)),
        ("ONNX Runtime", lambda model: onnxruntime.InferenceSession(model.SerializeToString(), options)),
    ):
        try:
            use(model)
            print(f"Y of {y}: {name} accepts it")
        except Exception:
            print(f"Y of {y}: {name} refuses it")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
X: T scale: V Y: V
Y of float: full check refuses it
Y of float: ONNX Runtime refuses it
Y of float16: full check refuses it
Y of float16: ONNX Runtime refuses it
END

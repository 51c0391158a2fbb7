#!/bin/sh
# ONNX Runtime does not load a float16 model whose layer norm is a chain of operators in float32 between two casts.
#
# ONNX Runtime 1.31.1 with onnx 1.23.2. The model is valid, and runs without optimisations. From ORT_ENABLE_BASIC on, the
# default included, the fusion takes the casts into one LayerNormalization with x in float16 and weights in float32, which
# that operator does not have. So the bodies of evenorm.onnx.convert square by Mul in such files, which the fusion does not
# recognise.
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
from onnx.parser import parse_model

model = parse_model("""<ir_version: 8, opset_import: ["": 17]>
norm (float16[2,8] x, float[8] w, float[8] b) => (float16[2,8] y) {
  wide = Cast <to = 1> (x)
  mean = ReduceMean <axes = [-1]> (wide)
  centred = Sub (wide, mean)
  two = Constant <value = float {2.0}> ()
  square = Pow (centred, two)
  var = ReduceMean <axes = [-1]> (square)
  eps = Constant <value = float {1e-5}> ()
  sum = Add (var, eps)
  root = Sqrt (sum)
  xhat = Div (centred, root)
  scaled = Mul (xhat, w)
  shifted = Add (scaled, b)
  y = Cast <to = 10> (shifted)
}""")
onnx.checker.check_model(model, full_check=True)
given = {"x": np.arange(16, dtype=np.float16).reshape(2, 8), "w": np.ones(8, np.float32), "b": np.zeros(8, np.float32)}
for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    try:
        print(level, onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, given)[0].dtype)
    except Exception as error:
        print(level, "does not load:", "bound to different types" if "bound to different types" in str(error) else error)
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
ORT_DISABLE_ALL float16
ORT_ENABLE_BASIC does not load: bound to different types
ORT_ENABLE_ALL does not load: bound to different types
END

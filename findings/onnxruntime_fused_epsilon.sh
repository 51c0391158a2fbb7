#!/bin/sh
# ONNX Runtime's fusions of norms take 1e-5 for an epsilon that they cannot read: one that is an input of the model, and
# that of an RMS norm in float64.
#
# ONNX Runtime 1.31.1 with onnx 1.23.2. Both models are valid and right without optimisations. An RMS norm in float64 whose
# epsilon is the constant 0.01 becomes SimplifiedLayerNormalization with 1e-5 from ORT_ENABLE_EXTENDED on. A layer norm
# whose epsilon is an input becomes LayerNormalization with 1e-5 from ORT_ENABLE_BASIC on, so the input has no effect. So
# evenorm.onnx.convert leaves a norm whose epsilon is an input, and the bodies of its operators square by Mul if a file has
# other types than float32, because the fusions look for Pow.
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

RMS = """<ir_version: 8, opset_import: ["": 17]> norm (double[2,8] x, double[8] w) => (double[2,8] y) {
  two = Constant <value = double {2.0}> ()
  square = Pow (x, two)
  mean = ReduceMean <axes = [-1]> (square)
  eps = Constant <value = double {0.01}> ()
  sum = Add (mean, eps)
  root = Sqrt (sum)
  xhat = Div (x, root)
  y = Mul (xhat, w)
}"""
LAYER = """<ir_version: 8, opset_import: ["": 17]>
norm (float[2,8] x, float[8] w, float[8] b, float eps) => (float[2,8] y) {
  mean = ReduceMean <axes = [-1]> (x)
  centred = Sub (x, mean)
  two = Constant <value = float {2.0}> ()
  square = Pow (centred, two)
  var = ReduceMean <axes = [-1]> (square)
  sum = Add (var, eps)
  root = Sqrt (sum)
  xhat = Div (centred, root)
  scaled = Mul (xhat, w)
  y = Add (scaled, b)
}"""
levels = onnxruntime.GraphOptimizationLevel
x = 0.1 * np.random.default_rng(0).standard_normal((2, 8))
centred = x - x.mean(-1, keepdims=True)
single = {"x": np.float32(x), "w": np.ones(8, np.float32), "b": np.zeros(8, np.float32), "eps": np.array(0.01, np.float32)}
for name, text, given, rows in (("RMS", RMS, {"x": x, "w": np.ones(8)}, x), ("layer", LAYER, single, centred)):
    model = parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(levels, level)
        y = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, given)[0]
        exact = {eps: rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + eps) for eps in (0.01, 1e-5)}
        print(name, level, [eps for eps, value in exact.items() if np.abs(y - value).max() < 1e-5])
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
RMS ORT_DISABLE_ALL [0.01]
RMS ORT_ENABLE_BASIC [0.01]
RMS ORT_ENABLE_EXTENDED [1e-05]
layer ORT_DISABLE_ALL [0.01]
layer ORT_ENABLE_BASIC [1e-05]
layer ORT_ENABLE_EXTENDED [1e-05]
END

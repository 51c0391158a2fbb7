#!/bin/sh
# OpenVINO on a CPU ignores the eps_mode of NormalizeL2: "max" computes what "add" means.
#
# OpenVINO 2026.4.1. "max" divides by sqrt(max(sum of squares, eps)), "add" by sqrt(sum of squares + eps). For four
# elements of 1e-4 and eps = 1e-6, these give 0.1 and 0.098058. Both modes give 0.098058.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet openvino==2026.4.1 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import numpy as np
import openvino
import openvino.opset15 as operators

x = np.full((1, 4), 1e-4, np.float32)
for mode, expected in (("add", 1e-4 / (4e-8 + 1e-6) ** 0.5), ("max", 1e-4 / max(4e-8, 1e-6) ** 0.5)):
    parameter = operators.parameter(x.shape, np.float32)
    norm = operators.normalize_l2(parameter, operators.constant(np.array([1])), 1e-6, mode)
    model = openvino.Model([norm], [parameter])
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    print(f"{mode}: {compiled([x])[0][0, 0]:.6f}, expected {expected:.6f}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
add: 0.098058, expected 0.098058
max: 0.098058, expected 0.100000
END

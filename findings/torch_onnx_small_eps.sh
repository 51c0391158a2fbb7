#!/bin/sh
# torch.onnx.export drops an eps of 1e-8 or less from norms that it writes as several operators: rows of zeros become
# NaN.
#
# PyTorch 2.13.0 with onnxscript 0.7.2. The exporter's optimiser removes additions of 0, and takes 1e-8 for 0. RMSNorm
# before opset 23, and norms that a model composes, are written as Pow, ReduceMean, Add, Sqrt and so on, and lose their
# Add. A row of zeros then divides 0 by 0, and a row whose mean of squares is eps becomes 1 instead of 0.7071.
# optimize=False keeps the Add. evenorm's RMS norm is exported the same way: docs/python.md states it, and
# test_onnx_keeps_a_small_eps tests the remedy.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet \
  torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import onnxruntime
import torch

for eps in (1e-7, 1e-8):
    x = torch.tensor([[0.0, 0.0], [eps**0.5, -(eps**0.5)]])
    norm = torch.nn.RMSNorm(2, eps=eps, elementwise_affine=False)
    for optimize in (True, False):
        program = torch.onnx.export(norm, (x,), dynamo=True, verbose=False, opset_version=20, optimize=optimize)
        model = program.model_proto
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {model.graph.input[0].name: x.numpy()})
        added = [node.op_type for node in model.graph.node].count("Add")
        print(f"eps {eps:g}, optimize={optimize}: {added} Add, y = {y[0, 0]:.4f} and {y[1, 0]:.4f}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
eps 1e-07, optimize=True: 1 Add, y = 0.0000 and 0.7071
eps 1e-07, optimize=False: 1 Add, y = 0.0000 and 0.7071
eps 1e-08, optimize=True: 0 Add, y = nan and 1.0000
eps 1e-08, optimize=False: 1 Add, y = 0.0000 and 0.7071
END

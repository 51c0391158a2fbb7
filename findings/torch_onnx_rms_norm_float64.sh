#!/bin/sh
# torch.onnx.export of a float64 RMSNorm without eps: opset 22 writes no eps at all, and opset 23 float32's.
#
# PyTorch 2.13.0 with onnxscript 0.7.2. torch.nn.RMSNorm(eps=None) adds 2.2e-16 to float64 rows. Before opset 23, the
# exporter's optimiser removes so small an addition, and rows of zeros become NaN. From opset 23 on, RMSNormalization
# gets the eps 1.19e-7, and rows of 1e-5 become 0.029 instead of 1. evenorm.torch.RMSNorm writes 2.2e-16 there.
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

x = torch.tensor([[0.0, 0.0], [1e-5, -1e-5]], dtype=torch.float64)
norm = torch.nn.RMSNorm(2, elementwise_affine=False).double()
print("PyTorch:", [round(value, 3) for value in norm(x)[:, 0].tolist()])
for opset in (22, 23):
    model = torch.onnx.export(norm, (x,), dynamo=True, verbose=False, opset_version=opset).model_proto
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {model.graph.input[0].name: x.numpy()})
    print(f"opset {opset}:", [round(value, 3) for value in y[:, 0].tolist()])
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
PyTorch: [0.0, 1.0]
opset 22: [nan, 1.0]
opset 23: [0.0, 0.029]
END

#!/bin/sh
# OpenVINO converts torch.var(x, correction=2) of a traced model to the unbiased variance, without a warning.
#
# OpenVINO 2026.4.1 and PyTorch 2.13.0. PyTorch divides the sum of squares by n - correction. The converter takes every
# correction but 0 for 1: of 0 to 7, correction=4 gives 6 instead of 10.5. It refuses the same models from torch.export.
# evenorm has the biased variance only.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet \
  openvino==2026.4.1 torch==2.13.0 packaging==26.4 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import openvino
import torch


class Variance(torch.nn.Module):
    def __init__(self, correction):
        super().__init__()
        self.correction = correction

    def forward(self, x):
        return torch.var(x, -1, correction=self.correction)


x = torch.arange(8.0)[None]
for correction in (0, 1, 2, 4):
    module = Variance(correction)
    model = openvino.convert_model(module, example_input=x)
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    try:
        openvino.convert_model(torch.export.export(module, (x,)))
        exported = "converted"
    except Exception as error:
        exported = "refused" if "Unexpected value of correction" in str(error) else str(error)
    y, expected = compiled([x.numpy()])[0].item(), module(x).item()
    print(f"correction={correction}: {y:.2f}, PyTorch {expected:.2f}; from torch.export: {exported}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
correction=0: 5.25, PyTorch 5.25; from torch.export: converted
correction=1: 6.00, PyTorch 6.00; from torch.export: converted
correction=2: 6.00, PyTorch 7.00; from torch.export: refused
correction=4: 6.00, PyTorch 10.50; from torch.export: refused
END

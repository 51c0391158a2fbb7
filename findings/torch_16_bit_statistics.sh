#!/bin/sh
# PyTorch keeps a layer norm's mean and rstd in float16 if its weight is float16, and the weight's gradient suffers.
#
# PyTorch 2.13.0 on a CPU. native_layer_norm returns statistics in the weight's type; on the meta device it always
# promises float32. The backward pass subtracts the rounded mean. For rows of mean 100 and standard deviation 1, the
# weight's gradient is more than five times as far from the float64 one as with a float32 weight of the same values.
# evenorm's statistics are float64.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet torch==2.13.0 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import torch

torch.manual_seed(0)
x, dy = (torch.randn(64, 768) + 100).half(), torch.randn(64, 768).half()
exact = (dy.double() * torch.nn.functional.layer_norm(x.double(), (768,))).sum(0)
errors = []
for dtype in (torch.float16, torch.float32):
    weight = torch.ones(768, dtype=dtype, requires_grad=True)
    _, on_cpu, _ = torch.native_layer_norm(x, [768], weight, None, 1e-5)
    _, on_meta, _ = torch.native_layer_norm(x.to("meta"), [768], weight.to("meta"), None, 1e-5)
    print(f"weight {dtype}: the mean is {on_cpu.dtype}, on the meta device {on_meta.dtype}")
    torch.nn.functional.layer_norm(x, (768,), weight).backward(dy)
    errors.append((weight.grad.double() - exact).abs().max().item())
print("the error of the weight's gradient is more than five times as large:", errors[0] > 5 * errors[1])
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
weight torch.float16: the mean is torch.float16, on the meta device torch.float32
weight torch.float32: the mean is torch.float32, on the meta device torch.float32
the error of the weight's gradient is more than five times as large: True
END

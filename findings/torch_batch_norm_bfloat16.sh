#!/bin/sh
# The running statistics of PyTorch's batch norm in bfloat16 stop on their way to the data's mean and variance.
#
# PyTorch 2.13.0 on a CPU. The statistics of BatchNorm1d(1).bfloat16() are bfloat16. An update is momentum times a
# difference, and is lost if it is below half a last place. With momentum 0.01 and batches of mean 5 and variance 18,
# the mean stops at 3.3 and the variance at 13.4, so evaluation normalises with other statistics than training did.
# float32 statistics arrive. Layer norm has no running statistics.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet torch==2.13.0 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import torch

x = torch.tensor([[2.0], [8.0]])
for dtype in (torch.bfloat16, torch.float32):
    norm = torch.nn.BatchNorm1d(1, momentum=0.01).to(dtype)
    for _ in range(5000):
        norm(x.to(dtype))
    print(f"{dtype}: mean {norm.running_mean.item():.1f} of 5, variance {norm.running_var.item():.1f} of 18")
    print("  evaluation:", *(f"{value:.1f}" for value in norm.eval()(x.to(dtype)).flatten().tolist()))
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
torch.bfloat16: mean 3.3 of 5, variance 13.4 of 18
  evaluation: -0.4 1.3
torch.float32: mean 5.0 of 5, variance 18.0 of 18
  evaluation: -0.7 0.7
END

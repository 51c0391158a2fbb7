#!/bin/sh
# torch.nn.functional.normalize of float16 gives NaN for rows of zeros, and 0 for rows whose norm is above 65504.
#
# PyTorch 2.13.0 on a CPU. The default eps of 1e-12 is 0 in float16, so a row of zeros becomes 0 / 0. The norm is summed
# in float32 but then rounded to float16: of 4096 elements of 2000 it is infinite, and the row becomes 0. bfloat16 and
# float32 are right in both cases. evenorm's RMS norm computes float16 rows in float32 and gives 0 for a row of zeros.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet torch==2.13.0 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import torch

for dtype in (torch.float16, torch.bfloat16, torch.float32):
    zeros, large = torch.zeros(1, 4, dtype=dtype), torch.full((1, 4096), 2000, dtype=dtype)
    results = (torch.nn.functional.normalize(x)[0, 0].item() for x in (zeros, large))
    print(f"{dtype}, rows of 0 and of 2000 (1/64):", *results)
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
torch.float16, rows of 0 and of 2000 (1/64): nan 0.0
torch.bfloat16, rows of 0 and of 2000 (1/64): 0.0 0.015625
torch.float32, rows of 0 and of 2000 (1/64): 0.0 0.015625
END

#!/bin/sh
# MLX's GroupNorm gives 0 for float16 rows beyond +-256, unless pytorch_compatible=True, and BatchNorm gives 0, too.
#
# mlx 0.32.4 on a CPU. GroupNorm and BatchNorm compute the variance in x's type: it overflows, and every element is
# divided by infinity. With pytorch_compatible=True, GroupNorm calls mlx.core.fast.layer_norm, which is right, as
# LayerNorm and InstanceNorm are. evenorm computes float16 rows in float32.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet 'mlx[cpu]==0.32.4' numpy==2.4.6
cat >"$folder/check.py" <<'END'
import mlx.core as mx
import mlx.nn as nn

mx.set_default_device(mx.cpu)
x = mx.array([1000.0, -1000.0] * 4).astype(mx.float16)
norms = {
    "GroupNorm": (nn.GroupNorm(2, 8, affine=False), (1, 1, 8)),
    "GroupNorm, pytorch_compatible": (nn.GroupNorm(2, 8, affine=False, pytorch_compatible=True), (1, 1, 8)),
    "BatchNorm": (nn.BatchNorm(1, affine=False), (8, 1)),
    "InstanceNorm": (nn.InstanceNorm(1), (1, 8, 1)),
    "LayerNorm": (nn.LayerNorm(8, affine=False), (1, 8)),
}
for name, (norm, shape) in norms.items():
    print(f"{name}: {norm(x.reshape(shape)).flatten()[0].item():g}")
END
"$python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
GroupNorm: 0
GroupNorm, pytorch_compatible: 1
BatchNorm: 0
InstanceNorm: 1
LayerNorm: 1
END

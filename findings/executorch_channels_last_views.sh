#!/bin/sh
# ExecuTorch computes wrong numbers where a model splits the channels of a channels-last input.
#
# ExecuTorch 1.5.1 with PyTorch 2.13.0. x.unflatten(1, (4, 2)).sum(...) of an input in channels-last order exports,
# lowers and runs without a warning, and returns sums of other elements: the view reads the memory as if it were
# contiguous. Contiguous inputs are right. torch.nn.GroupNorm, which has an operator of its own, is refused there when it
# runs. evenorm's group norm as operators of core ATen splits channels, so it needs contiguous inputs in ExecuTorch.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet torch==2.13.0 executorch==1.5.1
cat >"$folder/check.py" <<'END'
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime


class SumsOfGroups(torch.nn.Module):
    def forward(self, x):
        return x.unflatten(1, (4, 2)).sum((2, 3, 4))


x = torch.arange(96.0).reshape(1, 8, 3, 4)
for order in (torch.contiguous_format, torch.channels_last):
    given = x.contiguous(memory_format=order)
    program = to_edge(torch.export.export(SumsOfGroups(), (given,))).to_executorch()
    (y,) = Runtime.get().load_program(program.buffer).load_method("forward").execute([given])
    print(f"{str(order).removeprefix('torch.')}: {y.tolist()}, PyTorch: {SumsOfGroups()(given).tolist()}")
END
"$folder/venv/bin/python" -W ignore "$folder/check.py" 2>"$folder/errors" >"$folder/all" || { cat "$folder/errors"; exit 1; }
grep PyTorch: "$folder/all" >"$folder/seen"
cat "$folder/seen"
diff "$folder/seen" - <<'END'
contiguous_format: [[276.0, 852.0, 1428.0, 2004.0]], PyTorch: [[276.0, 852.0, 1428.0, 2004.0]]
channels_last: [[1032.0, 1104.0, 1176.0, 1248.0]], PyTorch: [[276.0, 852.0, 1428.0, 2004.0]]
END

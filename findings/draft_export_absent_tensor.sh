#!/bin/sh
# torch.export.draft_export refuses a custom operator that is given None for an absent optional tensor.
#
# PyTorch 2.13.0 (torch.export.export takes the same call). draft_export checks with hashes that an operator changes no
# argument. None has no hash, and the check takes that for a mutation that the schema does not declare. PyTorch itself
# writes the None into the call if a later positional argument has no default. With keyword-only arguments behind the
# tensor, it leaves the None out, and draft_export succeeds. So evenorm's operators take eps by keyword only.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet torch==2.13.0
cat >"$folder/check.py" <<'END'
import torch

library = torch.library.Library("finding", "DEF")
for name, separator in (("positional", ""), ("keyword", "*, ")):
    library.define(f"{name}(Tensor x, Tensor? shift=None, {separator}float scale=1.0) -> Tensor")
    compute = lambda x, shift=None, scale=1.0: x * scale if shift is None else x * scale + shift
    library.impl(name, compute, "CPU")
    library.impl(name, compute, "Meta")


class Call(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        return getattr(torch.ops.finding, self.name)(x, None, scale=2.0)


x = torch.ones(3)
for name in ("positional", "keyword"):
    assert torch.equal(torch.export.export(Call(name), (x,)).module()(x), 2 * x)
    try:
        torch.export.draft_export(Call(name), (x,))
        result = "ok"
    except RuntimeError as error:
        result = "refused: for argument 'shift'" if "for argument 'shift'" in str(error) else str(error)
    print(f"torch {torch.__version__.split('+')[0]}, draft_export, {name}: {result}")
END
"$folder/venv/bin/python" -W ignore "$folder/check.py" 2>/dev/null >"$folder/seen"
cat "$folder/seen"
diff "$folder/seen" - <<'END'
torch 2.13.0, draft_export, positional: refused: for argument 'shift'
torch 2.13.0, draft_export, keyword: ok
END

#!/bin/sh
# torch.onnx.export inlines the functions that a custom_translation_table writes, so no operator with a body can come out
# of it.
#
# PyTorch 2.13.0 with onnxscript 0.7.2 and onnx 1.23.2. A translation may call an onnxscript function of a domain of its
# own, so that a runtime which knows the operator takes its kernel, and every other runtime the body. At the end, the
# exporter converts the model to the wanted opset, and inlines all functions first, even with optimize=False and even if
# the model has that opset. The file has only the standard operators of the body. So evenorm has no table of translations:
# evenorm.onnx.convert finds the norms in the exported file, and adds the bodies (docs/onnx.md).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 numpy==2.4.6
cat >"$folder/check.py" <<'END'
import torch
from onnxscript import FLOAT
from onnxscript import opset18 as op
from onnxscript import script
from onnxscript.values import Opset


@script(Opset("example", 1))
def Centre(x: FLOAT[...]) -> FLOAT[...]:
    return op.Sub(x, op.ReduceMean(x, op.Constant(value_ints=[-1])))


@torch.library.custom_op("example::centre", mutates_args=())
def centre(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(-1, keepdim=True)


@centre.register_fake
def _(x):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def forward(self, x):
        return centre(x)


table = {torch.ops.example.centre.default: Centre}
for optimize in (True, False):
    exported = torch.onnx.export(
        Model(), (torch.ones(2, 4),), dynamo=True, custom_translation_table=table, optimize=optimize, opset_version=18,
        verbose=False,
    )
    model = exported.model_proto
    print(f"optimize={optimize}:", [node.op_type for node in model.graph.node], [one.name for one in model.functions])
END
(cd "$folder" && "$python" -W ignore check.py) 2>"$folder/errors" >"$folder/seen" || { cat "$folder/errors"; exit 1; }
cat "$folder/seen"
diff "$folder/seen" - <<'END'
optimize=True: ['ReduceMean', 'Sub'] []
optimize=False: ['Constant', 'ReduceMean', 'Sub'] []
END

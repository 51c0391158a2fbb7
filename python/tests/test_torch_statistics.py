"""The statistics that the forward pass keeps for the backward pass: which passes keep them. They change no bits."""

import pytest
import torch
from torch.func import functional_call, grad, vjp
from torch_cases import NAMES, NATIVE, DispatchMode, case, outputs

import evenorm.torch

pytestmark = pytest.mark.skipif(not NATIVE, reason="statistics are kept by the C++ operators")
SHAPE = (64, 96)  # large enough that they are kept
LOW = (torch.float32, torch.bfloat16, torch.float16)


def keeps_them(norm, x):
    """True if the backward pass uses the mean and rstd of the original x: it is given 10 times the saved x."""
    weight = norm.weight
    norm(x).backward(torch.ones_like(x))
    dweight, weight.grad = weight.grad, None
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 10 if t.shape == x.shape else t):
        y = norm(x)
    y.backward(torch.ones_like(x))
    found, weight.grad = weight.grad, None
    return not torch.allclose(found, dweight, rtol=0.1)


def seeds_of(outs):
    return [torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype) for out in outputs(outs)]


def gradients_of(c, **options):
    outs = outputs(c.function(*c.tensors))
    return torch.autograd.grad(outs, c.tensors, seeds_of(outs), **options)


def with_recomputed(function):
    """Runs the function in a mode that sees every operator: passes recompute statistics instead of keeping them."""
    with DispatchMode():
        return function()


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", NAMES)
def test_kept_and_recomputed_statistics_give_the_same_bits(name, dtype):
    c = case(name, dtype, SHAPE)
    kept, recomputed = gradients_of(c), with_recomputed(lambda: gradients_of(c))
    assert all(torch.equal(k, r) for k, r in zip(kept, recomputed, strict=True))


def test_which_passes_keep_statistics():
    def example(*shape, dtype=torch.float32):
        return torch.randn(*shape, dtype=dtype).requires_grad_()

    for norm in (evenorm.torch.LayerNorm(96), evenorm.torch.RMSNorm(96)):
        assert keeps_them(norm, example(64, 96))
        assert keeps_them(norm, torch.randn(64, 96))  # only the weight needs a gradient
        assert not keeps_them(norm, example(3, 96))  # few elements
        assert not with_recomputed(lambda norm=norm: keeps_them(norm, example(64, 96)))
    assert keeps_them(evenorm.torch.LayerNorm((4, 8, 96)), example(3, 2, 4, 8, 96))
    assert not keeps_them(evenorm.torch.LayerNorm(8), example(1000, 8))  # statistics would be half the size of x
    assert not keeps_them(evenorm.torch.LayerNorm(96, dtype=torch.float64), example(64, 96, dtype=torch.float64))


@pytest.mark.parametrize("around", ["forward", "backward"])
def test_checkpoints_run_again_in_another_mode(around):
    norm, x, dy = evenorm.torch.LayerNorm(96), torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE)
    norm(x * 1).backward(dy)
    expected, x.grad = x.grad, None

    def run(part, function):
        return with_recomputed(function) if part == around else function()

    y = run("forward", lambda: torch.utils.checkpoint.checkpoint(lambda x: norm(x * 1), x, use_reentrant=False))
    run("backward", lambda: y.backward(dy))
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_the_gradients(name):
    c = case(name, torch.float32, SHAPE)

    def second():
        first = gradients_of(c, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), c.tensors[:1])[0]

    assert torch.equal(second(), with_recomputed(second))


def test_all_ways_of_differentiating_give_the_same_bits():
    norm, x, dy = evenorm.torch.LayerNorm(96), torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE)
    norm(x).backward(dy)
    expected = x.grad

    def scalar(x):
        return (norm(x) * dy).sum()

    assert torch.equal(grad(scalar)(x.detach()), expected)
    assert torch.equal(vjp(norm, x.detach())[1](dy)[0], expected)
    parameters = {name: p.detach() for name, p in norm.named_parameters()}
    by_call = grad(lambda x: (functional_call(norm, parameters, x) * dy).sum())(x.detach())
    assert torch.equal(by_call, expected)
    x.grad = None
    torch.utils.checkpoint.checkpoint(norm, x, use_reentrant=False).backward(dy)
    assert torch.equal(x.grad, expected)
    x.grad = None
    y = norm(x)
    y.backward(dy, retain_graph=True)
    y.backward(dy)
    assert torch.equal(x.grad, expected + expected)


def test_compiled_autograd_of_an_eager_forward():
    norm, x, dy = evenorm.torch.LayerNorm(96), torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE)
    norm(x).backward(dy)
    expected, x.grad = x.grad, None
    y = norm(x)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        y.backward(dy)
    assert torch.equal(x.grad, expected)
    x.grad = None
    y = torch.utils.checkpoint.checkpoint(norm, x, use_reentrant=False)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        y.backward(dy)
    assert torch.equal(x.grad, expected)

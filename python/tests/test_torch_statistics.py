"""Statistics that the forward pass keeps for the backward pass: which passes have them, and that no bit depends on it."""

import pytest
import torch
from torch.func import functional_call, grad, jvp, vjp
from torch_cases import EXTENSION, NAMES, case, outputs

import evenorm.torch

pytestmark = pytest.mark.skipif(not EXTENSION, reason="statistics are kept by the extension")
SHAPE = (64, 96)  # large enough that they are kept
LOW = (torch.float32, torch.bfloat16, torch.float16)


def packed_shapes(function, *tensors):
    """The shapes of what is saved, in f64 alone."""
    packed = []

    def pack(t):
        if t.dtype == torch.float64:
            packed.append(tuple(t.shape))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function(*tensors)
    return packed


def seeds_of(outs):
    return [torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype) for out in outputs(outs)]


def gradients_of(c, **options):
    outs = outputs(c.function(*c.tensors))
    return torch.autograd.grad(outs, c.tensors, seeds_of(outs), **options)


def found_anew(function):
    """Gradients by a way that keeps none: below a mode that looks at every operator."""

    class Nothing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Nothing():
        return function()


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_have_the_bits_of_statistics_found_anew(name, dtype):
    c = case(name, dtype, SHAPE)
    assert packed_shapes(c.function, *c.tensors) == [(1 if "rms" in name else 2, 64)]
    kept, anew = gradients_of(c), found_anew(lambda: gradients_of(c))
    assert all(torch.equal(k, a) for k, a in zip(kept, anew, strict=True))


def test_which_passes_keep_them():
    x = torch.randn(SHAPE, requires_grad=True)
    norm = evenorm.torch.LayerNorm(96)
    assert packed_shapes(norm, x) == [(2, 64)]
    assert packed_shapes(evenorm.torch.RMSNorm(96), x) == [(1, 64)]
    assert packed_shapes(evenorm.torch.LayerNorm((4, 8, 96)), torch.randn(3, 2, 4, 8, 96)) == [(2, 6)]
    assert packed_shapes(norm, torch.randn(3, 96)) == []  # small
    with torch.no_grad():
        assert packed_shapes(norm, x) == []
    wide = [t for t in packed_shapes(evenorm.torch.LayerNorm(96).double(), x.detach().double().requires_grad_())]
    assert (2, 64) not in wide
    assert found_anew(lambda: packed_shapes(norm, x)) == []


def test_they_are_used():
    x, norm = torch.randn(SHAPE, requires_grad=True), evenorm.torch.LayerNorm(96)

    def twice_the_rstd(t):
        return t * torch.tensor([[1.0], [2.0]], dtype=torch.float64) if t.dtype == torch.float64 else t

    norm(x).backward(torch.ones(SHAPE))
    dweight, norm.weight.grad = norm.weight.grad, None
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, twice_the_rstd):
        y = norm(x)
    y.backward(torch.ones(SHAPE))
    assert torch.equal(norm.weight.grad, 2 * dweight)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_the_gradients(name):
    c = case(name, torch.float32, SHAPE)

    def second():
        first = gradients_of(c, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), c.tensors[:1])[0]

    assert torch.equal(second(), found_anew(second))


def test_every_way_of_differentiating_gives_the_same_bits():
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


def test_tangents_of_the_backward_pass():
    """Forward over reverse, with x large enough."""
    norm, x, t = evenorm.torch.LayerNorm(96), torch.randn(SHAPE), torch.randn(SHAPE)
    dy = torch.randn(SHAPE)

    def dx(x):
        return grad(lambda x: (norm(x) * dy).sum())(x)

    _, tangent = jvp(dx, (x,), (t,))
    step = 1e-3
    difference = (dx(x + step * t).double() - dx(x - step * t).double()) / (2 * step)
    assert torch.allclose(tangent.double(), difference, atol=1e-2)


def test_compiled_autograd_of_an_eager_forward():
    norm, x, dy = evenorm.torch.LayerNorm(96), torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE)
    norm(x).backward(dy)
    expected, x.grad = x.grad, None
    y = norm(x)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        y.backward(dy)
    assert torch.equal(x.grad, expected)


def test_what_was_saved_and_changed_is_refused():
    a = torch.randn(SHAPE, requires_grad=True) * 1
    y = evenorm.torch.layer_norm(a, (96,))
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()

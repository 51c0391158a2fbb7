"""Derivatives of evenorm.torch's functions, against finite differences and formulas, in every mode of autograd."""

from functools import partial

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint
from torch_cases import DTYPES, NAMES, NATIVE, case, outputs

import evenorm.torch

SHAPES = [((3, 4), 1), ((2, 3, 4), 2), ((5,), 1), ((3, 1), 1), ((2, 3, 4), 3)]


@pytest.mark.parametrize("shape, axes", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_match_finite_differences(name, shape, axes):
    c = case(name, torch.float64, shape, axes)
    modes = dict(check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True) if NATIVE else {}
    assert torch.autograd.gradcheck(c.function, c.tensors, **modes)
    modes = dict(check_fwd_over_rev=True, check_rev_over_rev=True) if NATIVE else {}
    assert torch.autograd.gradgradcheck(c.function, c.tensors, **modes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_match_the_formula(name, dtype):
    c = case(name, dtype, (70, 33))
    wide = [t.detach().double().requires_grad_() for t in c.tensors]
    seeds = [torch.randn(70, 33, dtype=torch.float64).to(dtype) for _ in outputs(c.function(*c.tensors))]
    found = torch.autograd.grad(outputs(c.function(*c.tensors)), c.tensors, seeds)
    exact = torch.autograd.grad(outputs(c.formula(*wide)), wide, [s.double() for s in seeds])
    # The sum is rounded to a 16-bit x's type before it is normalised; the formula in float64 does not round it.
    factor = 40 if "add" in name else 2
    for f, e in zip(found, exact, strict=True):
        assert f.dtype == dtype
        assert (f.double() - e).abs().max() <= factor * max(torch.finfo(dtype).eps, 1e-15) * e.abs().max()


@pytest.mark.parametrize("rows", [4096, 4099])  # no 16-bit type holds 4099
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_many_rows_of_ones_give_an_exact_bias_gradient(dtype, rows):
    x = torch.randn(rows, 64, dtype=dtype)
    norm = evenorm.torch.LayerNorm(64)  # float32 parameters
    norm(x).backward(torch.ones(rows, 64, dtype=dtype))
    assert norm.bias.grad.dtype == torch.float32
    assert torch.equal(norm.bias.grad, torch.full((64,), float(rows)))


def test_residual_of_another_type():
    x, r = torch.randn(4, 8, dtype=torch.bfloat16).requires_grad_(), torch.randn(4, 8).requires_grad_()
    y, s = evenorm.torch.add_layer_norm(x, r, (8,))
    assert y.dtype == s.dtype == torch.bfloat16
    (y.float().square().sum() + s.float().sum()).backward()
    assert x.grad.dtype == torch.bfloat16 and r.grad.dtype == torch.float32
    assert torch.equal(x.grad.float(), r.grad)


def test_backward_twice_needs_the_graph_kept():
    x = torch.randn(3, 4, requires_grad=True)
    y = evenorm.torch.layer_norm(x, (4,))
    y.backward(torch.ones_like(y), retain_graph=True)
    y.backward(torch.ones_like(y))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward(torch.ones_like(y))


@pytest.mark.parametrize("shape", [(3, 4), (64, 96)])  # without statistics and with them
def test_changing_a_saved_tensor_is_refused(shape):
    x = torch.randn(shape, requires_grad=True) * 1
    y = evenorm.torch.layer_norm(x, shape[1:])
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name, count", [("rms", 1), ("rms", 2), ("add_rms", 2)])  # of tensors without gradients
def test_rms_norm_does_not_save_an_x_without_a_gradient(name, count):
    """So x may change in place, or be of inference mode."""
    c = case(name, torch.float64, (64, 96))
    frozen, leaves = [t.detach() for t in c.tensors[:count]], c.tensors[count:]

    def loss(function, leaves):
        given = [t * 1 for t in frozen]
        y, *sums = outputs(function(*given, *leaves))
        return (y * (sums or given)[0].add_(y)).sum()

    exact, f = torch.autograd.grad(loss(c.formula, leaves), leaves), partial(loss, c.function)
    again, compiled = partial(checkpoint, f, use_reentrant=False), torch.compile(f, backend="aot_eager")
    for found in (grad(f)(leaves), *(torch.autograd.grad(g(leaves), leaves) for g in (f, again, compiled))):
        torch.testing.assert_close(found, exact)
    of_inference = torch.inference_mode()(lambda: [t.clone() for t in frozen])()
    outputs(c.function(*of_inference, *leaves))[0].sum().backward()


def test_the_bias_may_change_before_the_backward_pass():
    norm = evenorm.torch.LayerNorm(4)
    y = norm(torch.randn(3, 4))
    with torch.no_grad():
        norm.bias.add_(1)
    y.sum().backward()
    assert torch.equal(norm.bias.grad, torch.full((4,), 3.0))


@pytest.mark.parametrize("shape", [(3, 4), (64, 96)])
def test_saved_tensor_hooks_see_x_and_the_weight(shape):
    """Checkpoints require that the forward pass and its repetition save the same tensors."""
    packed = []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.t().contiguous() if t.dim() == 2 else t

    x, norm = torch.randn(shape, requires_grad=True), evenorm.torch.LayerNorm(shape[1])
    norm(x).square().sum().backward()
    expected, x.grad = x.grad, None
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.t() if t.dim() == 2 else t):
        y = norm(x)
    y.square().sum().backward()
    assert sorted(packed) == [shape, shape[1:]] and torch.equal(x.grad, expected)


# --- the caller's memory, and magnitudes


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 4)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_changing_an_output_in_place_keeps_tangents(name, shape):
    c = case(name, torch.float64, shape)
    for place, given in enumerate(t.detach() for t in c.tensors):
        for which in range(len(outputs(c.function(*c.tensors)))):

            def changed(function, place=place, which=which):
                def f(a):
                    tensors = [a if i == place else t.detach() for i, t in enumerate(c.tensors)]
                    return outputs(function(*tensors))[which].mul_(2)

                return f

            if which == 1 and place > 1:
                continue  # the sum does not depend on parameters
            tangent = torch.randn_like(given)
            kept = tangent.clone()
            exact = jvp(changed(c.formula), (given,), (tangent,))[1]
            for _ in range(2):
                assert torch.allclose(jvp(changed(c.function), (given,), (tangent,))[1], exact)
            assert torch.equal(tangent, kept)


@pytest.mark.skipif(not NATIVE, reason="operators in Python refuse forward mode")
def test_changing_gradients_in_place_keeps_tangents():
    x, weight, dy, tangent = torch.randn(4, 5, dtype=torch.float64)
    kept = tangent.clone()
    for which in range(3):

        def f(dy, which=which):
            return torch.ops.evenorm.layer_norm_backward(dy, x, (5,), weight, None, 1e-5, [True] * 3)[which].mul_(2)

        first = jvp(f, (dy,), (tangent,))[1]
        assert torch.equal(jvp(f, (dy,), (tangent,))[1], first)
        assert torch.equal(tangent, kept)


def second_derivatives(kind, x, dy, weight, eps, of_dx):
    """The derivatives of <of_dx, dx> by dy, x and weight."""
    leaves = [t.detach().clone().requires_grad_() for t in (dy, x, weight)]
    dy, x, weight = leaves
    shape = tuple(x.shape[-1:])
    y = getattr(evenorm.torch, f"{kind}_norm")(x, shape, weight, eps=eps)
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    return torch.autograd.grad(dx, leaves, of_dx)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_a_loss_up_to_the_third(name):
    """Each order's graph is kept, and the gradient of y depends on x and on the parameters."""
    c = case(name, torch.float64, (3, 4))
    found, expected = [], []
    for function, derivatives in ((c.function, found), (c.formula, expected)):
        leaves = [t.detach().clone().requires_grad_() for t in c.tensors]
        loss = sum((out**3).sum() for out in outputs(function(*leaves)))
        for _ in range(3):
            of_each = torch.autograd.grad(loss, leaves, create_graph=True)
            derivatives.extend(of_each)
            loss = sum((t**2).sum() for t in of_each)
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        assert torch.allclose(f, e, rtol=1e-8), i


MAGNITUDES = [2.0**k for k in (-1000, -542, -512, 0, 512, 515, 1010)]


@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_second_derivatives_at_every_magnitude(kind, eps):
    """For m x and m^2 eps, dx is 1/m times as large. A power of two changes no other bit."""
    dy, x, weight, of_dx = torch.randn(4, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight = weight[0]
    exact = second_derivatives(kind, x, dy, weight, eps, of_dx)
    for m in MAGNITUDES:
        if eps == 0 or 1e-150 < m < 1e150:
            by_dy, by_x, by_weight = second_derivatives(kind, x * m, dy, weight, eps * m * m, of_dx * m)
            for found, expected in zip((by_dy, by_x * m, by_weight), exact, strict=True):
                assert torch.allclose(found, expected, rtol=1e-12, atol=1e-13), m


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_forward_mode_at_every_magnitude(kind):
    x, tangent = torch.tensor([[1.0, 2, 4], [1, 0, 0]], dtype=torch.float64)

    def norm(x, eps=0.0):
        return getattr(evenorm.torch, f"{kind}_norm")(x, (3,), eps=eps)

    exact = jvp(norm, (x,), (tangent,))[1]
    for m in (*MAGNITUDES, 1e155, 1e-163):
        assert torch.allclose(jvp(norm, (x * m,), (tangent * m,))[1], exact, rtol=1e-12)
    least = jvp(lambda x: norm(x, 1e-5), (x * 1e-200,), (tangent,))[1]  # such a row is negligible compared with eps
    centred = tangent - tangent.mean() if kind == "layer" else tangent
    assert torch.allclose(least, centred / 1e-5**0.5, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e200, 1.7e308, 5e-324])
def test_forward_mode_of_a_constant_row(value):
    """The rounded mean may differ from the value, but the row still counts as constant."""
    x, tangent = torch.full((7,), value, dtype=torch.float64), torch.arange(7.0, dtype=torch.float64)
    for eps, expected in ((0, torch.zeros_like(x)), (1e-4, (tangent - 3) * 100)):
        found = jvp(lambda x, eps=eps: evenorm.torch.layer_norm(x, (7,), eps=eps), (x,), (tangent,))[1]
        assert torch.allclose(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("row", [[0.0, 0, 0], [0.1] * 7, [2.5]], ids=str)
def test_rows_without_spread_have_no_second_derivatives(kind, row):
    if kind == "rms" and any(row):
        return
    x = torch.tensor([row, row], dtype=torch.float64)
    dy, weight = torch.randn_like(x), torch.randn_like(x[0])
    for found in second_derivatives(kind, x, dy, weight, 0.0, torch.randn_like(x)):
        assert torch.equal(found, torch.zeros_like(found))


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_second_derivatives_of_no_rows(kind):
    x, weight = torch.randn(0, 4), torch.randn(4)
    found = second_derivatives(kind, x, x, weight, 1e-5, x)
    assert [tuple(t.shape) for t in found] == [(0, 4), (0, 4), (4,)]
    assert torch.equal(found[2], torch.zeros(4))


# --- functional transforms


@pytest.mark.parametrize("name", NAMES)
def test_functional_transforms_agree_with_the_formula(name):
    c = case(name, torch.float64, (3, 4))
    tensors = tuple(t.detach() for t in c.tensors)

    def scalar(f):
        return lambda *args: sum((out**3).sum() for out in outputs(f(*args)))

    def over_forward(f):
        return grad(lambda *args: jvp(f, args, args)[1] ** 2)

    def of_each_sample(f):
        return grad(lambda *args: (vmap(grad(f))(*(torch.stack([t, 2 * t]) for t in args)) ** 2).sum())

    def of_all(f):
        return lambda *args: torch.cat([t.flatten() for t in jacrev(grad(f), tuple(range(len(args))))(*args)])

    for transform in (grad, jacrev, jacfwd, hessian, over_forward, of_each_sample, of_all):
        f, g = transform(scalar(c.function)), transform(scalar(c.formula))
        assert torch.allclose(f(*tensors), g(*tensors)), transform
    tangents = tuple(torch.randn_like(t) for t in tensors)
    for found, exact in zip(jvp(c.function, tensors, tangents), jvp(c.formula, tensors, tangents), strict=True):
        for f, e in zip(outputs(found), outputs(exact), strict=True):
            assert torch.allclose(f, e)
    result, pull = vjp(c.function, *tensors)
    exact_result, exact_pull = vjp(c.formula, *tensors)
    seeds = tuple(torch.randn_like(out) for out in outputs(result))
    seed = seeds if isinstance(result, tuple) else seeds[0]
    for f, e in zip(pull(seed), exact_pull(seed), strict=True):
        assert torch.allclose(f, e)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_gives_each_sample_its_own_bits(name):
    c = case(name, torch.float32, (3, 40))
    tensors = [t.detach() for t in c.tensors]
    for batched in range(1, 2 ** len(tensors)):
        dims = [1 if batched >> i & 1 else None for i in range(len(tensors))]
        stacks = [
            torch.stack([t, t * 2, t + 1], dim=1) if d is not None else t for t, d in zip(tensors, dims, strict=True)
        ]
        found = vmap(c.function, in_dims=tuple(dims))(*stacks)
        for i in range(3):
            one = c.function(*(s if d is None else s.select(1, i) for s, d in zip(stacks, dims, strict=True)))
            for f, e in zip(outputs(found), outputs(one), strict=True):
                assert torch.equal(f[i], e)


@pytest.mark.parametrize("shape", [(5, 3, 6), (3, 0, 6), (0, 2, 6), (0, 6)], ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_vmap_matches_pytorch(name, shape):
    """With samples, samples without rows, no samples, and weights for no samples."""
    x, weights, weight = torch.randn(shape), torch.randn(shape[0], 6), torch.randn(6)

    def answers(norm):
        def loss(x, weight):
            return norm(x, (6,), weight).square().sum()

        yield vmap(lambda x: norm(x, (6,), weight))(x)
        yield vmap(lambda x, w: norm(x, (6,), w))(x, weights)
        yield vmap(lambda w: norm(torch.ones(2, 6), (6,), w))(weights)
        yield vmap(grad(loss), in_dims=(0, None))(x, weight)
        yield vmap(grad(loss, argnums=1), in_dims=(0, None))(x, weight)
        yield from vmap(grad(loss, argnums=(0, 1)))(x, weights)
        yield jacrev(lambda x: norm(x, (6,), weight))(x)
        yield grad(lambda w: vmap(lambda x, w: norm(x, (6,), w))(x, w).sum())(weights)
        leaf = weights.clone().requires_grad_()
        vmap(lambda w: norm(torch.ones(2, 6), (6,), w))(leaf).sum().backward()
        yield leaf.grad

    ours, theirs = (list(answers(getattr(module, name))) for module in (evenorm.torch, torch.nn.functional))
    for found, exact in zip(ours, theirs, strict=True):
        assert found.shape == exact.shape and found.dtype == exact.dtype
        assert torch.allclose(found, exact, atol=1e-5)

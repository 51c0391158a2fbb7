"""evenorm.torch.convert on norms whose forward depends on x's axes: results never differ from the module's own."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
import torch_look_alikes as look_alikes
from torch import nn
from torch_look_alikes import made, ones, randomised, zeros

import evenorm.torch as et
from evenorm.torch import _probe

C = 6
LAYER = "layer_norm(x, weight, bias, eps=eps"
FIRST = f"{LAYER}, axes=(1,))"


class BaseNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-6


def last(m, x):
    return F.layer_norm(x, m.weight.shape, m.weight, m.bias, m.eps)


def along(axis, m, x):
    return last(m, x.movedim(axis, -1)).movedim(-1, axis)


def images(m, x):
    """ConvNeXt's norm: four axes only, by permutations."""
    return last(m, x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def xhat_of_channels(m, x):
    centred = x - x.mean(1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(1, keepdim=True) + m.eps)


def broadcast(m, x):
    """Segment Anything's norm: four axes only, by a formula that keeps the memory order."""
    return m.weight[:, None, None] * xhat_of_channels(m, x) + m.bias[:, None, None]


def by_rank(m, x):
    return images(m, x) if x.dim() == 4 else last(m, x)


def rms_by_rank(m, x):
    axis, weight = (1, m.weight[:, None, None]) if x.dim() == 4 else (-1, m.weight)
    return x * torch.rsqrt(x.pow(2).mean(axis, keepdim=True) + m.eps) * weight


def by_size(m, x):
    """Normalises the first axis after the batch's if it is as long as the row."""
    return along(1, m, x) if x.dim() > 2 and x.shape[1] == m.weight.numel() else last(m, x)


def by_leading_size(m, x):
    """Recognises images without a batch axis by their size."""
    return along(0, m, x) if x.dim() == 3 and x.shape[0] == m.weight.numel() else last(m, x)


def other_eps_for_images(m, x):
    return F.layer_norm(x, x.shape[-1:], m.weight, m.bias, 0.1 if x.dim() == 4 else m.eps)


def layer(forward, cols=C):
    return made(forward, BaseNorm, weight=ones(cols), bias=zeros(cols))


def of_groups(groups):
    forward = lambda m, x: nn.GroupNorm.forward(m, x.float()).type(x.dtype)  # noqa: E731
    return type("OtherGroupNorm", (nn.GroupNorm,), {"forward": forward})(groups, C)


def all_channels(m, x):
    centred = x - x.mean((1, 2), keepdim=True)
    return m.weight * centred / torch.sqrt(centred.pow(2).mean((1, 2), keepdim=True) + m.eps) + m.bias


def each_channel(m, x):
    return F.instance_norm(x, None, None, m.weight, m.bias, True, 0.0, m.eps)


def any_first(m, x):
    return along(1, m, x)


# The module, and the text of its report.
MODULES = {
    "images": (lambda: layer(images), FIRST),
    "broadcast": (lambda: layer(broadcast), FIRST),
    "any first": (lambda: layer(any_first), FIRST),
    "by rank": (lambda: layer(by_rank), f"{LAYER}, axes=(1,) of 4-D x)"),
    "RMS by rank": (
        lambda: made(rms_by_rank, BaseNorm, weight=ones(C)), "rms_norm(x, weight, eps=eps, axes=(1,) of 4-D x)"),
    "by size": (lambda: layer(by_size), f"it is {LAYER}) of 1-D, 2-D x, but not of 4-D x"),
    "by leading size": (lambda: layer(by_leading_size), f"{LAYER}), not of 3-D x"),
    "unsqueezing": (lambda: layer(lambda m, x: last(m, x.unsqueeze(0) if x.dim() == 2 else x)), f"{LAYER}), not of 2-D x"),
    "vectors as they are": (lambda: layer(lambda m, x: x if x.dim() == 1 else last(m, x)), f"{LAYER}), not of 1-D x"),
    "other eps": (lambda: layer(other_eps_for_images), f"{LAYER}), not of 4-D x"),
    "broadcast channels": (  # for sequences of samples
        lambda: made(lambda m, x: m.weight * xhat_of_channels(m, x) + m.bias, BaseNorm, weight=ones(1, C, 1),
                     bias=zeros(1, C, 1)), FIRST),
    "broadcast rows": (
        lambda: made(lambda m, x: F.layer_norm(x, x.shape[-1:], None, None, m.eps) * m.weight + m.bias, BaseNorm,
                     weight=ones(1, 1, C), bias=zeros(1, 1, C)), f"{LAYER}), not of 1-D, 2-D x"),
    "exotic order": (lambda: layer(lambda m, x: images(m, x) if x.is_contiguous() else broadcast(m, x)), FIRST),
    "groups": (lambda: of_groups(2), "group_norm(x, num_groups, weight, bias, eps=eps)"),
    "one group": (lambda: of_groups(1), "group_norm(x, num_groups, weight, bias, eps=eps)"),
    "all channels": (
        lambda: made(all_channels, BaseNorm, weight=ones(C, 1), bias=zeros(C, 1)),
        "group_norm(x, 1, weight, bias, eps=eps)"),
    "each channel": (lambda: layer(each_channel), "group_norm(x, channels, weight, bias, eps=eps)"),
    "no weights": (
        lambda: made(lambda m, x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + m.eps), BaseNorm),
        "rms_norm(x, eps=eps, axes=(1,))"),
}  # fmt: skip


def converted(module):
    """Returns the original module, the converted one, and the texts of the report."""
    plain = copy.deepcopy(randomised(module))
    report = et.convert(module)
    texts = [one.new.removeprefix("evenorm.torch.") for one in report.replaced] + [one.reason for one in report.left]
    return plain, module, texts


def result(module, x):
    """Returns y and the gradients, or the type of the exception."""
    x = x.clone().requires_grad_()
    try:
        y = module(x)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)
    dy = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    return y.detach(), *torch.autograd.grad((y * dy).sum(), [x, *module.parameters()], allow_unused=True)


@pytest.mark.parametrize("name", MODULES)
def test_every_rank_size_and_order(name):
    make, reported = MODULES[name]
    plain, module, texts = converted(make())
    assert texts == [reported]
    for rank in range(1, 6):
        for shape in itertools.product((1, 2, C) if rank < 4 else (2, C), repeat=rank):
            x = torch.randn(shape) + 1
            expected, found = result(plain, x), result(module, x)
            if isinstance(expected, type):
                assert found is expected, shape
            else:
                torch.testing.assert_close(
                    found, expected, rtol=1e-4, atol=1e-4, msg=lambda text, at=shape: f"{at}: {text}"
                )
    shapes = [(2, C, 7), (2, 7, C), (2, C, 3, 4), (2, 3, 4, C)]
    for shape, order in ((one, order) for one in shapes for order in itertools.permutations(range(len(one)))):
        x = torch.randn([shape[axis] for axis in order]).permute([order.index(axis) for axis in range(len(shape))])
        expected = result(plain, x)
        if not isinstance(expected, type):
            assert module(x).stride() == plain(x).stride(), (order, shape)


def test_only_ranks_that_were_tried_call_evenorm(norm_calls):
    plain, module, _ = converted(look_alikes.NarrowRMSNorm())
    norm_calls.clear()
    for rank in range(1, 7):
        x = torch.randn(*[2] * (rank - 1), look_alikes.C)
        torch.testing.assert_close(module(x), plain(x))
    assert [len(shape) for _, shape in norm_calls] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("forward", [images, broadcast, any_first])
def test_channels_first_calls_evenorm(forward, norm_calls):
    _, module, _ = converted(layer(forward))
    norm_calls.clear()
    module(torch.randn(2, C, 3, 4))
    assert norm_calls == [("layer_norm", (2, 3, 4, C))]


def test_equal_axes_too_large_to_try(monkeypatch, norm_calls):
    """The module's own forward runs if another axis is as long as the row and was too large to try."""
    monkeypatch.setattr(_probe, "MOST_SQUARE", 0)
    monkeypatch.setattr(_probe, "MOST_ELEMENTS", 0)
    cols = 20
    for forward, shapes in ((by_leading_size, [(cols, 3, cols)]), (last, [(2, cols), (cols, cols)])):
        plain, module, texts = converted(layer(forward, cols))
        assert texts == [f"{LAYER})"]
        norm_calls.clear()
        for shape in shapes:
            x = torch.randn(shape)
            torch.testing.assert_close(module(x), plain(x))
        assert norm_calls == [("layer_norm", shape) for shape in shapes if shape == (2, cols)]


@pytest.mark.parametrize("cols", [2, 3, 5, 15, 17, 300])
@pytest.mark.parametrize(
    "forward, name", [(images, "images"), (broadcast, "broadcast"), (by_rank, "by rank"), (by_size, "by size")]
)
def test_rows_as_long_as_other_axes_of_the_trial(forward, name, cols):
    plain, module, texts = converted(layer(forward, cols))
    assert texts == [MODULES[name][1]]
    x = torch.randn(2, cols, 3, cols)
    torch.testing.assert_close(module(x), plain(x), rtol=1e-4, atol=1e-4)


def test_channels_first_compiled_exported_and_vmapped():
    torch._dynamo.reset()
    model = nn.Sequential(randomised(layer(images)), randomised(layer(broadcast)))
    et.convert(model)
    x = torch.randn(2, C, 3, C)
    expected = model(x)
    assert torch.equal(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected)
    dynamic = {0: torch.export.Dim("batch"), 2: torch.export.Dim("height")}
    exported = torch.export.export(model, (x,), dynamic_shapes=(dynamic,))
    assert torch.equal(exported.module()(x), expected)
    assert sum("evenorm" in str(node.target) for node in exported.graph.nodes) == 2
    samples = torch.func.vmap(model)(x.expand(3, *x.shape))
    assert torch.equal(samples, expected.expand(3, *x.shape))

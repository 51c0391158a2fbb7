"""evenorm.torch.convert on norms whose forward depends on the axes of x: never another result than the module's own."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import copy
import itertools

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
import torch_look_alikes as look_alikes
from torch import nn

import evenorm.torch as et

C = 6
OWN = {"layer": "layer_norm(x, weight, bias, eps=eps", "rms": "rms_norm(x, weight, eps=eps"}


class Base(nn.Module):
    def __init__(self, cols=C):
        super().__init__()
        self.weight, self.bias, self.eps = look_alikes.ones(cols), look_alikes.zeros(cols), 1e-6

    def norm(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class PlainNorm(Base):
    def forward(self, x):
        return self.norm(x)


class ImagesNorm(Base):
    """ConvNeXt's: four axes only, by permutations."""

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class BroadcastNorm(Base):
    """Segment Anything's: four axes, by a formula; it keeps the order in memory."""

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight[:, None, None] * ((x - mean) / torch.sqrt(var + self.eps)) + self.bias[:, None, None]


class AnyFirstNorm(Base):
    """Over axis 1, whatever follows."""

    def forward(self, x):
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)


class ByRankNorm(Base):
    def forward(self, x):
        if x.dim() == 4:
            x = x.permute(0, 2, 3, 1)
        x = self.norm(x)
        return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


class ByRankRMSNorm(nn.Module):
    def __init__(self, cols=C):
        super().__init__()
        self.weight, self.eps = look_alikes.ones(cols), 1e-6

    def forward(self, x):
        axis = 1 if x.dim() == 4 else -1
        weight = self.weight[:, None, None] if x.dim() == 4 else self.weight
        return x * torch.rsqrt(x.pow(2).mean(axis, keepdim=True) + self.eps) * weight


class BySizeNorm(Base):
    """The first axis after the batch's, if it can be."""

    def forward(self, x):
        if x.dim() > 2 and x.shape[1] == self.weight.numel():
            return self.norm(x.movedim(1, -1)).movedim(-1, 1)
        return self.norm(x)


class LeadingSizeNorm(Base):
    """Images without a batch, told by their size."""

    def forward(self, x):
        if x.dim() == 3 and x.shape[0] == self.weight.numel():
            return self.norm(x.movedim(0, -1)).movedim(-1, 0)
        return self.norm(x)


class UnsqueezingNorm(Base):
    def forward(self, x):
        return self.norm(x.unsqueeze(0) if x.dim() == 2 else x)


class SqueezingNorm(Base):
    def forward(self, x):
        return self.norm(x.squeeze(0) if x.dim() == 3 else x)


class VectorsOnlyNorm(Base):
    def forward(self, x):
        if x.dim() == 1:
            return x
        return self.norm(x)


class OtherEpsNorm(Base):
    """In images, and in nothing else, another eps."""

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 0.1 if x.dim() == 4 else self.eps)


class ChannelwiseNorm(Base):
    """Of sequences of samples, with parameters that broadcast."""

    def __init__(self, cols=C):
        super().__init__()
        self.weight, self.bias = look_alikes.ones(1, cols, 1), look_alikes.zeros(1, cols, 1)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight * (x - mean) / torch.sqrt(var + self.eps) + self.bias


class BroadcastLastNorm(Base):
    def __init__(self, cols=C):
        super().__init__()
        self.weight, self.bias = look_alikes.ones(1, 1, cols), look_alikes.zeros(1, 1, cols)

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], None, None, self.eps) * self.weight + self.bias


class NoWeightsFirstNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)


MODULES = {
    ImagesNorm: OWN["layer"] + ", axes=(1,))",
    BroadcastNorm: OWN["layer"] + ", axes=(1,))",
    AnyFirstNorm: OWN["layer"] + ", axes=(1,))",
    ByRankNorm: OWN["layer"] + ", axes=(1,) of 4-D x)",
    ByRankRMSNorm: OWN["rms"] + ", axes=(1,) of 4-D x)",
    BySizeNorm: "it is " + OWN["layer"] + ") of 1-D, 2-D x, but not of 4-D x",
    LeadingSizeNorm: OWN["layer"] + "), not of 3-D x",
    UnsqueezingNorm: OWN["layer"] + "), not of 2-D x",
    SqueezingNorm: OWN["layer"] + "), not of 3-D x",
    VectorsOnlyNorm: OWN["layer"] + "), not of 1-D x",
    OtherEpsNorm: OWN["layer"] + "), not of 4-D x",
    ChannelwiseNorm: OWN["layer"] + ", axes=(1,))",
    BroadcastLastNorm: OWN["layer"] + "), not of 1-D, 2-D x",
    NoWeightsFirstNorm: "rms_norm(x, eps=1e-06, axes=(1,))",
}
CASES = pytest.mark.parametrize(("make", "said"), [pytest.param(*one, id=one[0].__name__) for one in MODULES.items()])


def said_of(report):
    return [one.new.removeprefix("evenorm.torch.") for one in report.replaced] + [one.reason for one in report.left]


def result(module, x):
    """y and the gradients, or the type of what was raised."""
    x = x.clone().requires_grad_()
    try:
        y = module(x)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)
    dy = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    return y.detach(), *torch.autograd.grad((y * dy).sum(), [x, *module.parameters()], allow_unused=True)


@CASES
def test_every_rank_and_size_gives_what_the_module_gives(make, said):
    torch.manual_seed(0)
    plain = look_alikes.randomised(make())
    module = copy.deepcopy(plain)
    report = et.convert(module)
    assert said_of(report) == [said], report
    for rank in range(1, 6):
        for shape in itertools.product((1, 2, C) if rank < 4 else (2, C), repeat=rank):
            x = torch.randn(shape) + 1
            expected, found = result(plain, x), result(module, x)
            if isinstance(expected, type):
                assert found is expected, shape
                continue
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, msg=lambda text, at=shape: f"{at}: {text}")


@CASES
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0)])
def test_results_lie_in_memory_as_the_module_s(make, said, order):
    plain = make()
    module = copy.deepcopy(plain)
    et.convert(module)
    back = [order.index(axis) for axis in range(4)]
    for shape in ((2, C, 3, 4), (2, 3, 4, C)):
        x = torch.randn([shape[axis] for axis in order]).permute(back)
        assert x.shape == shape
        try:
            expected = plain(x)
        except RuntimeError:
            continue
        assert module(x).stride() == expected.stride()


def calls_of(monkeypatch):
    from evenorm.torch import _look_alikes

    calls = []
    for name in ("layer_norm", "rms_norm"):
        original = getattr(_look_alikes, name)
        monkeypatch.setattr(_look_alikes, name, lambda *a, f=original: calls.append(a[0].shape) or f(*a))
    return calls


def test_only_ranks_that_were_tried_are_evenorm_s(monkeypatch):
    module = look_alikes.NarrowRMSNorm()
    et.convert(module)
    calls = calls_of(monkeypatch)
    for rank in range(1, 7):
        x = torch.randn(*[2] * (rank - 1), look_alikes.C)
        torch.testing.assert_close(module(x), look_alikes.NarrowRMSNorm.forward(module, x))
    assert [len(shape) for shape in calls] == [1, 2, 3, 4]


def test_channels_first_is_evenorm_s(monkeypatch):
    for make in (ImagesNorm, BroadcastNorm, AnyFirstNorm):
        module = make()
        et.convert(module)
        with monkeypatch.context() as patched:
            calls = calls_of(patched)
            module(torch.randn(2, C, 3, 4))
        assert calls == [(2, 3, 4, C)]


def test_equal_axes_too_large_to_try(monkeypatch):
    """Where another axis is as long as the row, and that could not be tried, the module's own forward runs."""
    from evenorm.torch import _probe

    monkeypatch.setattr(_probe, "MOST_SQUARE", 0)
    monkeypatch.setattr(_probe, "MOST_ELEMENTS", 0)
    cols = 20
    module, plain = LeadingSizeNorm(cols), PlainNorm(cols)
    assert len(et.convert(nn.Sequential(module, plain)).replaced) == 2
    calls = calls_of(monkeypatch)
    x = torch.randn(cols, 3, cols)
    torch.testing.assert_close(module(x), LeadingSizeNorm.forward(module, x))
    for rows in (2, cols):
        x = torch.randn(rows, cols)
        torch.testing.assert_close(plain(x), PlainNorm.forward(plain, x))
    assert calls == [(2, cols)]


@pytest.mark.parametrize("cols", [2, 3, 5, 15, 17, 300])
def test_rows_as_long_as_other_axes_of_the_trial(cols):
    for make in (ImagesNorm, BroadcastNorm, ByRankNorm, BySizeNorm):
        plain = look_alikes.randomised(make(cols))
        module = copy.deepcopy(plain)
        report = et.convert(module)
        assert said_of(report) == [MODULES[make]], report
        x = torch.randn(2, cols, 3, cols)
        torch.testing.assert_close(module(x), plain(x), rtol=1e-4, atol=1e-4)


def test_channels_first_compiled_exported_and_by_samples():
    torch._dynamo.reset()
    module = nn.Sequential(look_alikes.randomised(ImagesNorm()), look_alikes.randomised(BroadcastNorm()))
    et.convert(module)
    x = torch.randn(2, C, 3, C)
    expected = module(x)
    assert torch.equal(torch.compile(module, backend="aot_eager", fullgraph=True)(x), expected)
    dynamic = {0: torch.export.Dim("batch"), 2: torch.export.Dim("height")}
    exported = torch.export.export(module, (x,), dynamic_shapes=(dynamic,))
    assert torch.equal(exported.module()(x), expected)
    assert sum("evenorm" in str(node.target) for node in exported.graph.nodes) == 2
    samples = torch.func.vmap(module)(x.expand(3, *x.shape))
    assert torch.equal(samples, expected.expand(3, *x.shape))

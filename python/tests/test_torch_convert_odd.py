"""evenorm.torch.convert on norms that are odd in what is around their formula: the signs and sizes of their parameters,
PyTorch's modes, where they keep state, how their class is made. Told, and never a conversion that stops half way."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import argparse
import collections
import dataclasses
import queue
import types

import pytest

torch = pytest.importorskip("torch")

import torch_look_alikes as look_alikes
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.lazy import LazyModuleMixin

import evenorm.torch as et

Norm = look_alikes.NarrowRMSNorm
COLS = 8
ELSEWHERE = types.ModuleType("elsewhere")
ELSEWHERE.calls = 0


class Affine(nn.LayerNorm):
    """Its parameters are given another way into the norm."""

    def __init__(self, cols=COLS, **options):
        super().__init__(cols, **options)

    def of(self, weight, bias):
        return weight, bias

    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, *self.of(self.weight, self.bias), self.eps)


class Absolute(Affine):
    def of(self, weight, bias):
        return weight.abs(), bias


class Positive(Affine):
    def of(self, weight, bias):
        return weight.relu(), bias


class AtMostTwo(Affine):
    def of(self, weight, bias):
        return weight.clamp(max=2), bias


class BoundedBias(Affine):
    def of(self, weight, bias):
        return weight, bias.clamp(-3, 3)


@pytest.mark.parametrize("make", [Absolute, Positive, AtMostTwo, BoundedBias])
@pytest.mark.parametrize("cols", [4, 8])
def test_parameters_of_any_sign_and_size(make, cols):
    report = et.convert(make(cols))
    assert not report.replaced and "on random input it differs" in report.left[0].reason, report


# --- state


class Keeping(Norm):
    def __init__(self, stats, count):
        super().__init__()
        self.stats, self.count = stats, count

    def forward(self, x):
        self.count(self.stats)
        return super().forward(x)


@dataclasses.dataclass(slots=True)
class Slotted:
    calls: int = 0


def add_one(stats):
    stats.calls += 1


def helper():
    helper.calls += 1


helper.calls = 0


class CountingAtFunction(Norm):
    def forward(self, x):
        helper()
        return super().forward(x)


class CountingElsewhere(Norm):
    def forward(self, x):
        ELSEWHERE.calls += 1
        return super().forward(x)


@pytest.mark.parametrize("stats", [types.SimpleNamespace(calls=0), argparse.Namespace(calls=0), Slotted()])
def test_state_in_holders(stats):
    report = et.convert(Keeping(stats, add_one))
    assert report.left[0].reason == "its forward changes its state (stats)", report
    assert stats.calls == 0


@pytest.mark.parametrize(
    ("stats", "count"), [(collections.UserList(), lambda s: s.append(1)), (queue.Queue(), lambda s: s.put(1))]
)
def test_state_in_containers_of_the_standard_library(stats, count):
    report = et.convert(Keeping(stats, count))
    assert report.left[0].reason == "its forward changes its state (stats)", report
    assert len(stats) == 0 if isinstance(stats, collections.UserList) else stats.empty()


def test_state_at_functions_and_in_other_modules():
    assert et.convert(CountingAtFunction()).left[0].reason == "its forward changes its state (helper.calls)"
    assert et.convert(CountingElsewhere()).left[0].reason == "its forward changes its state (calls)"
    assert helper.calls == 0 and ELSEWHERE.calls == 0


# --- what is around x


class UnderAutocast(Norm):
    """Products of matrices, which autocast rounds."""

    def forward(self, x):
        mean = F.linear(x * x, torch.full((1, x.shape[-1]), 1 / x.shape[-1], dtype=x.dtype))
        return x * torch.rsqrt(mean + self.eps) * self.weight


class UnderInference(Norm):
    def forward(self, x):
        return super().forward(x) * (2 if torch.is_inference_mode_enabled() else 1)


class Contiguous(Norm):
    def forward(self, x):
        return super().forward(x) * (1 if x.is_contiguous() else 2)


def test_one_that_refuses_what_is_not_contiguous_is_swapped():
    class Viewing(Norm):
        def forward(self, x):
            return super().forward(x.view(-1, x.shape[-1])).view(x.shape)

    assert et.convert(Viewing()).replaced


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (UnderAutocast, "under autocast"),
        (UnderInference, "under inference mode"),
        (Contiguous, "where x is not contiguous"),
    ],
)
def test_what_is_around_x(make, said):
    report = et.convert(make())
    assert report.left[0].reason == f"it computes something else {said}", report


# --- how modules and their classes are made


class WithKeywords(Norm):
    def __init_subclass__(cls, *, tag, **options):
        super().__init_subclass__(**options)


class Frozen(Norm):
    def __setattr__(self, name, value):
        if name == "__class__":
            raise AttributeError("frozen")
        super().__setattr__(name, value)


class Lazy(LazyModuleMixin, nn.Module):
    """A norm by its name as well."""

    def __init__(self):
        super().__init__()
        self.weight = nn.UninitializedParameter()

    def initialize_parameters(self, x):
        self.weight.materialize(x.shape[-1:])

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


class LazyNorm(Lazy):
    pass


class BuiltinNorm(Norm):
    forward = torch.relu


class SizedNorm(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.normalized_shape = normalized_shape

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:])


ODD = {
    "init_subclass": (type("Tagged", (WithKeywords,), {}, tag=1), "its class cannot have a subclass: TypeError"),
    "lazy": (LazyNorm, "its parameters have no shape yet"),
    "builtin": (BuiltinNorm, "its forward is not written in Python"),
    **{
        repr(size): (lambda size=size: SizedNorm(size), "its normalized_shape is")
        for size in ("last", 8.0, 0, -1, (), (0,), True, ("a",), {8}, torch.tensor(8), (2**40,))
    },
}


@pytest.mark.parametrize(("make", "said"), ODD.values(), ids=ODD)
def test_odd_modules_stop_nothing(make, said):
    model = nn.Sequential(make(), nn.LayerNorm(8))
    report = et.convert(model)
    assert [one.name for one in report.replaced] == ["1"]
    assert report.left[0].reason.startswith(said), report


def test_lazy_modules_of_other_names_are_nothing():
    assert et.convert(Lazy()).left == ()


def test_frozen_attributes_do_not_keep_a_class():
    assert et.convert(Frozen()).replaced


class TwoTypesNorm(look_alikes.ScaleShift):
    pass


def test_weight_and_bias_of_two_types():
    """What PyTorch's operator refuses, and a formula takes."""
    x = torch.randn(3, look_alikes.C)
    before, after = look_alikes.randomised(TwoTypesNorm()), look_alikes.randomised(TwoTypesNorm())
    for module in (before, after):
        module.shift = nn.Parameter(module.shift.detach().double())
    report = et.convert(after)
    assert report.left[0].reason == "its weight and bias are not of one type"
    swapped = look_alikes.randomised(TwoTypesNorm())
    assert et.convert(swapped).replaced
    swapped.shift = nn.Parameter(swapped.shift.detach().double())
    assert all(torch.equal(module(x), before(x)) for module in (after, swapped))


def test_under_a_default_type_of_few_digits():
    """1029 is none of bfloat16's numbers, and 1032 no row."""
    norm = look_alikes.PlainSubclass(1030)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert et.convert(norm).replaced
    finally:
        torch.set_default_dtype(torch.float32)

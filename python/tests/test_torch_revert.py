"""revert() gives evenorm's modules the classes of torch.nn back, and converted look-alikes their own."""

import pytest
import torch
import torch_look_alikes as look_alikes
from torch import nn
from torch.nn.utils import parametrize

import evenorm.torch as et

C = look_alikes.C


NORMS = {
    "LayerNorm": lambda nn: nn.LayerNorm(C),
    "RMSNorm": lambda nn: nn.RMSNorm(C),
    "GroupNorm": lambda nn: nn.GroupNorm(2, C),
    "InstanceNorm1d": lambda nn: nn.InstanceNorm1d(C, affine=True),
    "InstanceNorm2d": lambda nn: nn.InstanceNorm2d(C),
    "InstanceNorm3d": lambda nn: nn.InstanceNorm3d(C, track_running_stats=True),
}


@pytest.mark.parametrize("name", NORMS)
def test_constructed_modules_get_pytorchs_class(name):
    norm = NORMS[name](et)
    kept = dict(norm.named_parameters())
    assert [(one.name, one.new) for one in et.revert(norm).replaced] == [("", f"torch.nn.{name}")]
    assert type(norm) is getattr(nn, name) and all(norm.get_parameter(each) is own for each, own in kept.items())


def parametrized(norm, name):
    return parametrize.register_parametrization(norm, name, nn.Identity())


def test_conversions_are_undone_and_can_be_done_again():
    model = nn.Sequential(nn.LayerNorm(C), parametrized(nn.LayerNorm(C), "bias"), nn.GroupNorm(2, C))
    model.append(look_alikes.ScaleShift())
    model[0].register_forward_hook(lambda module, given, y: y + 1)
    x = torch.randn(5, C)
    expected, classes = model(x), list(map(parametrize.type_before_parametrizations, model))
    for _ in range(2):
        assert len(et.convert(model).replaced) == 4 and not torch.equal(model(x), expected)
        parametrized(model[3], "scale")
        report = et.revert(model)
        assert len(report.replaced) == 4 and not report.left and repr(report).startswith("evenorm.torch.revert: 4")
        assert list(map(parametrize.type_before_parametrizations, model)) == classes
        assert torch.equal(model(x), expected)
        parametrize.remove_parametrizations(model[3], "scale")
        assert type(model[3]) is look_alikes.ScaleShift


class Derived(et.LayerNorm):
    pass


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: et.LayerNorm(C, dim=1), "torch.nn's has no dim=1"),
        (lambda: et.RMSNorm((2, C), dim=(-1, -2)), "torch.nn's has no dim=(-1, -2)"),
        (lambda: et.LayerNorm((2, C), dim=(-2, -1)), None),
        (lambda: et.RMSNorm(C, bias=True), "torch.nn's has no bias"),
        (lambda: et.LayerNormGRU(4, C), "torch.nn has no such module"),
        (lambda: Derived(C), "torch.nn has no such module"),
    ],
)
def test_what_torch_nn_lacks_is_left(make, reason):
    norm = make()
    cls = type(norm)
    assert [one.reason for one in et.revert(norm).left] == [reason] * (reason is not None)
    assert (type(norm) is cls) == (reason is not None)

"""evenorm.torch.convert on modules that keep state, hide what is not finite, or have no values: left, unharmed, and told
why."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import collections
import copy
import random

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
import torch_look_alikes as look_alikes
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import evenorm.torch as et

C = look_alikes.C
Norm = look_alikes.NarrowRMSNorm
SEEN = []
COUNT = 0


def remember(x):
    SEEN.append(x.shape)


class Listing(Norm):
    def __init__(self):
        super().__init__()
        self.shapes = ["first"]

    def forward(self, x):
        self.shapes.append(x.shape)
        return super().forward(x)


class Nested(Norm):
    def __init__(self):
        super().__init__()
        self.stats = {"calls": collections.defaultdict(list)}

    def forward(self, x):
        self.stats["calls"][x.dim()].append(1)
        return super().forward(x)


class Counting(Norm):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Caching(Norm):
    def forward(self, x):
        self.last = x
        return super().forward(x)


class Recorder:
    def __init__(self):
        self.calls = 0

    def record(self):
        self.calls += 1


class HoldingObject(Norm):
    def __init__(self):
        super().__init__()
        self.recorder = Recorder()

    def forward(self, x):
        self.recorder.record()
        return super().forward(x)


class OfTheClass(Norm):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x)


class ListOfTheClass(Norm):
    seen = []  # noqa: RUF012

    def forward(self, x):
        self.seen.append(x.shape)
        return super().forward(x)


class OfTheModule(Norm):
    def forward(self, x):
        remember(x)
        return super().forward(x)


class CounterOfTheModule(Norm):
    def forward(self, x):
        global COUNT
        COUNT += 1
        return super().forward(x)


class Averaging(Norm):
    """A tensor that is neither parameter nor buffer."""

    def __init__(self):
        super().__init__()
        self.average = torch.zeros(3)

    def forward(self, x):
        self.average.add_(1)
        return super().forward(x)


class Clamping(Norm):
    """Its own weight, in place."""

    def forward(self, x):
        self.weight.data.clamp_(max=0.25)
        return super().forward(x)


class Overwriting(Norm):
    """Not itself, but x."""

    def forward(self, x):
        x.data.clamp_(-1e20, 1e20)
        return super().forward(x.data.mul_(2))


STATEFUL = {
    Overwriting: "x",
    Listing: "shapes",
    Nested: "stats",
    Counting: "calls",
    Caching: "last",
    HoldingObject: "recorder",
    OfTheClass: "OfTheClass.calls",
    ListOfTheClass: "ListOfTheClass.seen",
    OfTheModule: "SEEN",
    CounterOfTheModule: "COUNT",
    Averaging: "average",
    Clamping: "weight",
}


def state_of(module):
    recorder = getattr(module, "recorder", None)
    mine = {name: value for name, value in vars(module).items() if name not in ("_parameters", "recorder")}
    return copy.deepcopy(
        [mine, module.weight, recorder and recorder.calls, SEEN, COUNT, OfTheClass.calls, ListOfTheClass.seen]
    )


@pytest.mark.parametrize(("make", "name"), [pytest.param(*one, id=one[0].__name__) for one in STATEFUL.items()])
def test_state_that_changes_is_left_and_restored(make, name):
    module = make()
    held = {key: value for key, value in vars(module).items() if key != "training"}
    before = state_of(module)
    report = et.convert(module)
    assert [one.reason for one in report.left] == [f"its forward changes its state ({name})"], report
    assert type(module) is make
    assert str(state_of(module)) == str(before)
    assert all(vars(module)[key] is value for key, value in held.items())


def test_state_in_a_closure():
    calls, count = [], 0

    class Local(Norm):
        def forward(self, x):
            nonlocal count
            count += 1
            calls.append(1)
            return super().forward(x)

    report = et.convert(Local())
    assert report.left[0].reason in [f"its forward changes its state ({name})" for name in ("calls", "count")]
    assert not calls and count == 0


def test_state_that_only_rests_is_no_reason():
    class Resting(Norm):
        names = ["a"]  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.shapes, self.options, self.offset = [1], {"a": [2]}, torch.zeros(3)

        def forward(self, x):
            assert self.shapes and self.names
            return super().forward(x)

    assert et.convert(Resting()).replaced


def test_attributes_of_any_depth():
    module = Listing()
    for _ in range(5000):
        module.shapes = [module.shapes]
    report = et.convert(module)
    assert type(module) is Listing and report.left[0].reason == "its forward changes its state (shapes)"
    assert len(module.shapes) == 1


def test_random_states_are_not_moved():
    class Rolling(Norm):
        def forward(self, x):
            return super().forward(x) * (1 if random.random() >= 0 else 2)

    before = random.getstate()
    et.convert(Rolling())
    assert random.getstate() == before


# --- what is not finite, and what is large


class NanToNum(Norm):
    def forward(self, x):
        return super().forward(torch.nan_to_num(x))


class NanToNumAfter(Norm):
    def forward(self, x):
        return torch.nan_to_num(super().forward(x))


class OnlyInfinity(Norm):
    def forward(self, x):
        return super().forward(torch.where(x.isinf(), 1.0, x))


def clamped(limit):
    class ClampedNorm(Norm):
        def forward(self, x):
            return super().forward(x.clamp(-limit, limit))

    return ClampedNorm


class HalfRange(Norm):
    def forward(self, x):
        return super().forward(x.clamp(-65504, 65504))


class Refusing(Norm):
    def forward(self, x):
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        return super().forward(x)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (NanToNum, "rows that are not finite"),
        (NanToNumAfter, "rows that are not finite"),
        (OnlyInfinity, "rows that are not finite"),
        (HalfRange, "on large input it differs"),
        *((clamped(10.0**power), "on large input it differs") for power in (5, 8, 12)),
        (Refusing, "it raised ValueError when tried: not finite"),
    ],
)
def test_limits_are_noticed(make, reason):
    report = et.convert(make())
    assert not report.replaced and reason in report.left[0].reason, report


def norm_by(formula, eps=None, cols=C):
    """A module that computes formula(x, weight), or formula(x, weight, self.eps)."""

    class FormulaNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(cols) + 0.5)
            if eps is not None:
                self.eps = eps

        def forward(self, x):
            return formula(x, self.weight) if eps is None else formula(x, self.weight, self.eps)

    return FormulaNorm


def rms(x):
    return x.norm(dim=-1, keepdim=True) * x.shape[-1] ** -0.5


def variance(x):
    return x.square().mean(-1, keepdim=True)


CLAMPS = {
    "rms": lambda x, w: x / rms(x).clamp(min=1e-8) * w,
    "normalize": lambda x, w: F.normalize(x, dim=-1, eps=1e-5) * C**0.5 * w,
    "normalize, its own eps": lambda x, w: F.normalize(x, dim=-1) * C**0.5 * w,
    "variance": lambda x, w: x * variance(x).clamp(min=1e-12).rsqrt() * w,
    "least variance": lambda x, w: x * variance(x).clamp(min=torch.finfo(x.dtype).tiny).rsqrt() * w,
    "clamp_min": lambda x, w: x / variance(x).clamp_min(1e-24).sqrt() * w,
    "maximum": lambda x, w: x / torch.maximum(rms(x), torch.tensor(1e-10, dtype=x.dtype)) * w,
    "where": lambda x, w: torch.where(variance(x) > 1e-14, x * variance(x).rsqrt(), x) * w,
    "guarded": lambda x, w: x / rms(x).masked_fill(rms(x) == 0, 1) * w,
    "nan_to_num": lambda x, w: torch.nan_to_num(x / rms(x)) * w,
    "beside the root": lambda x, w: x / (rms(x) + 1e-10) * w,
    "layer": lambda x, w: (x - x.mean(-1, keepdim=True)) * x.var(-1, False, keepdim=True).clamp(min=1e-12).rsqrt() * w,
}
EPS_CLAMPS = {
    "variance": lambda x, w, eps: x * variance(x).clamp(min=eps).rsqrt() * w,
    "rms": lambda x, w, eps: x / rms(x).clamp(min=eps) * w,
    "beside the root": lambda x, w, eps: x / (rms(x) + eps) * w,
}


@pytest.mark.parametrize("formula", CLAMPS.values(), ids=CLAMPS)
def test_clamps_are_not_taken_for_eps(formula):
    report = et.convert(norm_by(formula)())
    assert not report.replaced, report
    assert "differs by" in report.left[0].reason or "its gradients are not" in report.left[0].reason, report


@pytest.mark.parametrize("eps", [0.0, 1e-30, 1e-16, 1e-8, 1e-5])
@pytest.mark.parametrize("formula", EPS_CLAMPS.values(), ids=EPS_CLAMPS)
def test_clamps_at_the_modules_eps(formula, eps):
    report = et.convert(norm_by(formula, eps)())
    assert not report.replaced, report
    assert "differs by" in report.left[0].reason or "its gradients are not" in report.left[0].reason, report


@pytest.mark.parametrize("eps", [1e-20, 1e-12, 1e-8, 1e-5, 0.1])
def test_small_rows_do_not_part_honest_norms(eps):
    model = nn.Sequential(norm_by(lambda x, w, eps: x * torch.rsqrt(variance(x) + eps) * w, eps)())
    assert len(et.convert(model).replaced) == 1
    x = torch.randn(7, C) * 10.0 ** -torch.arange(0, 42, 6).reshape(7, 1)
    exact = x.double() / (variance(x.double()) + eps).sqrt() * model[0].weight.double()
    assert ((model(x) - exact).abs() <= 1e-6 * exact.abs() + 1e-44).all()


def layer_xhat(x):
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, False, keepdim=True) + 1e-5)


def rms_xhat(x, eps=1e-6):
    return x * torch.rsqrt(variance(x) + eps)


def without_outliers(x):
    return torch.where(x.square() > 36 * variance(x), 0, x)


BOUNDED = {  # formulas that are norms of ordinary rows and parameters, and why they are left
    "layer": (lambda x, w: layer_xhat(x).clamp(-5, 5) * w, "on input with outliers it differs"),
    "dropped": (lambda x, w: layer_xhat(x).masked_fill(layer_xhat(x).abs() > 6, 0) * w, "on input with outliers it"),
    "tail": (lambda x, w: rms_xhat(x).clamp(min=-7) * w, "on input with outliers it differs"),
    "rms": (lambda x, w: rms_xhat(x).clamp(-7.5, 7.5) * w, "on input with outliers it differs"),
    "square": (
        lambda x, w: x * torch.rsqrt(variance(without_outliers(x)) + 1e-6) * w,
        "on input with outliers it differs",
    ),
    "variance": (lambda x, w: x * torch.rsqrt(variance(x).clamp(max=1e31) + 1e-6) * w, "on large input it differs"),
    "weight": (lambda x, w: rms_xhat(x) * w.clamp(-30, 30), "with large parameters it differs"),
    "output": (lambda x, w: (rms_xhat(x) * w).clamp(-1000, 1000), "with large parameters it differs"),
    "half": (lambda x, w: (rms_xhat(x) * w).clamp(-65504, 65504), "with large parameters it differs"),
}


@pytest.mark.parametrize(("formula", "reason"), BOUNDED.values(), ids=BOUNDED)
def test_bounds_that_ordinary_rows_do_not_reach(formula, reason):
    report = et.convert(norm_by(formula, cols=64)())
    assert not report.replaced and reason in report.left[0].reason, report


def test_bounds_that_short_rows_do_not_reach():
    class UnweightedNorm(nn.Module):
        def forward(self, x):
            return layer_xhat(x).clamp(-100, 100)

    report = et.convert(UnweightedNorm())
    assert not report.replaced and "on input with outliers it differs" in report.left[0].reason, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("cols", [64, 1000])
def test_outliers_and_large_parameters_do_not_part_honest_norms(dtype, cols):
    class Subclass(nn.LayerNorm):
        pass

    def in_float32(x, w):
        return rms_xhat(x.to(torch.promote_types(x.dtype, torch.float32))).to(x.dtype) * w

    def from_float32(x, w):
        wide = torch.promote_types(x.dtype, torch.float32)
        return (layer_xhat(x.to(wide)) * w.to(wide)).to(x.dtype)

    for make in (lambda: Subclass(cols), norm_by(in_float32, cols=cols), norm_by(from_float32, cols=cols)):
        report = et.convert(make().to(dtype))
        assert report.replaced, report


class StraightThroughAtZero(Norm):
    """Its values are the norm's, and its gradients too, but at rows of zeros."""

    def forward(self, x):
        y = super().forward(x)
        return torch.where((x == 0).all(-1, keepdim=True), x * self.weight, y)


def test_rows_of_zeros_have_gradients():
    report = et.convert(StraightThroughAtZero())
    assert not report.replaced and "its gradients are not" in report.left[0].reason, report


def test_large_rows_do_not_part_honest_norms():
    for make in look_alikes.NORMS:
        assert et.convert(make()).replaced


# --- without values


def test_default_device_meta():
    module, parameterless = look_alikes.ScaleShift(), look_alikes.NoWeightNorm()
    with torch.device("meta"):
        report = et.convert(nn.Sequential(module, parameterless))
    assert len(report.replaced) == 2, report


def test_under_fake_tensor_mode():
    with FakeTensorMode() as mode:
        model = nn.Sequential(nn.LayerNorm(C), look_alikes.ScaleShift(), look_alikes.Unbiased())
        report = et.convert(model)
        assert [one.name for one in report.replaced] == ["0", "1"], report
        assert report.left[0].reason.startswith("on random input it differs by ")
        assert model(torch.randn(3, C)).shape == (3, C)
    real = look_alikes.ScaleShift()
    with mode:
        report = et.convert(real)
    assert len(report.replaced) == 1, report
    assert real(torch.randn(3, C)).shape == (3, C)


class TensorEps(Norm):
    """An attribute that no registry knows, and so no trial can fill."""

    def __init__(self):
        super().__init__()
        self.minimum = torch.tensor(1e-6)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.minimum) * self.weight


def test_values_that_are_not_there_are_the_reason():
    with torch.device("meta"):
        meta = TensorEps()
    with FakeTensorMode():
        fake = TensorEps()
        inside = et.convert(TensorEps())
    for report in (et.convert(meta), et.convert(fake), inside):
        assert [one.reason for one in report.left] == [
            "its attribute minimum is a tensor without values (on the meta device, or fake): convert it once it has them"
        ], report
    assert et.convert(TensorEps()).replaced

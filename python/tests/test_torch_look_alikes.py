"""evenorm.torch.convert on norms that are not torch.nn's: replaced if they compute a norm, otherwise left."""

import copy
import inspect
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
import torch_look_alikes as look_alikes
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch_look_alikes import NarrowRMSNorm, ScaleShift, ZeroCentred, layer_xhat, made, randomised, rms_xhat, squares

import evenorm.torch as et
from evenorm.torch import _probe, _trial

C = look_alikes.C


def reason(module):
    """Returns the reason why the module is left."""
    report = et.convert(module)
    assert report.replaced == () and len(report.left) == 1, report
    return report.left[0].reason


def values_and_gradients(module, x):
    x = x.clone().requires_grad_()
    y = module(x)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return y, torch.autograd.grad((y * weight).sum(), [x, *module.parameters()], allow_unused=True)


@pytest.mark.parametrize("name", look_alikes.NORMS)
def test_norms_under_other_names_are_swapped(name):
    make, formula = look_alikes.NORMS[name]
    plain, module = randomised(make()), randomised(make())
    cls, before = type(module), copy.deepcopy(module.state_dict())
    tensors = [id(t) for t in (*module.parameters(), *module.buffers())]
    attributes = dict(vars(module))
    report = et.convert(module)
    assert [one.new for one in report.replaced] == [f"evenorm.torch.{formula}"], report
    assert isinstance(module, cls) and type(module) is not cls and "evenorm=True" in repr(module)
    for known_by in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(type(module), known_by) == getattr(cls, known_by)
    if cls in (NarrowRMSNorm, ZeroCentred):  # the others are made by type(), or by a function
        assert inspect.getsource(type(module)) == inspect.getsource(cls)
    if not issubclass(cls, torch.nn.LayerNorm):  # whose subclasses reach evenorm's forward by super()
        assert inspect.getsource(type(module).forward) == inspect.getsource(cls.forward)
    assert [id(t) for t in (*module.parameters(), *module.buffers())] == tensors and vars(module) == attributes
    assert all(torch.equal(module.state_dict()[key], value) for key, value in before.items())
    x = torch.randn(7, 3, *((4, 6) if name == "two axes" else (C,)))
    y, gradients = values_and_gradients(module, x)
    expected, expected_gradients = values_and_gradients(plain, x)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", look_alikes.OTHERS)
def test_other_modules_are_left(name):
    make, why = look_alikes.OTHERS[name]
    module = make()
    cls = type(module)
    assert why in reason(module) and type(module) is cls


@pytest.mark.parametrize("name", look_alikes.CLAMPS)
def test_clamps_are_kept(name, norm_calls):
    """RMS norms with a clamp are replaced for rows above it. The module's own forward computes smaller ones."""
    plain, module = (randomised(look_alikes.CLAMPS[name]()) for _ in range(2))
    report = et.convert(module)
    left = {"eps beside the root, eps 1e-08", "eps beside the root, eps 1e-05", "no NaN for zeros", "clamped variance"}
    assert bool(report.replaced) == (name not in left), report
    norm_calls.clear()
    for scale in (*10.0 ** -torch.arange(46), 0.0):
        x = scale * torch.randn(2, C)
        for a, b in zip(
            *(torch.utils._pytree.tree_leaves(values_and_gradients(one, x)) for one in (module, plain)), strict=True
        ):
            size = b.abs().max()  # 0 and NaN too
            torch.testing.assert_close(a / size, b / size, rtol=0, atol=1e-5, equal_nan=True)
    assert (len(norm_calls) > 1) == bool(report.replaced)
    together = torch.randn(4, C) * torch.tensor([[1.0], [0.0], [1e-3], [1e-41]])
    assert torch.equal(module(together)[::2], module(together[::2])) or not report.replaced
    torch.testing.assert_close(module(together), plain(together), equal_nan=True)


@pytest.mark.parametrize("eps", [1e-20, 1e-12, 1e-8, 1e-5, 0.1])
def test_small_rows_do_not_separate_correct_norms(eps):
    module = made(NarrowRMSNorm.forward, eps=eps, weight=nn.Parameter(torch.rand(C) + 0.5))
    assert et.convert(module).replaced
    x = torch.randn(7, C) * 10.0 ** -torch.arange(0, 42, 6).reshape(7, 1)
    exact = x.double() / (squares(x.double()) + eps).sqrt() * module.weight.double()
    assert ((module(x) - exact).abs() <= 1e-6 * exact.abs() + 1e-44).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("cols", [64, 1000])
def test_outliers_and_large_parameters_do_not_separate_correct_norms(dtype, cols):
    def in_float32(m, x):
        return rms_xhat(x.to(torch.promote_types(x.dtype, torch.float32))).to(x.dtype) * m.weight

    def from_float32(m, x):
        wide = torch.promote_types(x.dtype, torch.float32)
        return (layer_xhat(x.to(wide)) * m.weight.to(wide)).to(x.dtype)

    by_formula = [made(forward, weight=look_alikes.ones(cols)) for forward in (in_float32, from_float32)]
    for module in (look_alikes.PlainSubclass(cols), *by_formula):
        assert et.convert(module.to(dtype)).replaced


def test_modules_that_refuse_other_strides_are_replaced():
    def viewing(m, x):
        return NarrowRMSNorm.forward(m, x.view(-1, x.shape[-1])).view(x.shape)

    assert et.convert(made(viewing)).replaced


# --- what a replaced norm does


def test_look_alikes_call_evenorm(norm_calls):
    model = nn.Sequential(ScaleShift(), NarrowRMSNorm())
    et.convert(model)
    norm_calls.clear()
    model(torch.randn(3, C))
    model[1](x=torch.randn(3, C))
    assert [name for name, _ in norm_calls] == ["layer_norm", "rms_norm", "rms_norm"]
    for norm in model:
        x = torch.randn(3, C)
        y = norm(x)
        x.zero_()
        y.sum().backward()  # hand-written norms do not save an x without a gradient


class ChannelsFirst(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class CallsByHand(type(made(lambda m, x: layer_xhat(x) * m.weight + m.bias, look_alikes.PlainSubclass))):
    def forward(self, x):
        return super().forward(x)


def test_a_forward_that_calls_torch_nn_s_by_super_calls_evenorm_s(norm_calls):
    plain, module = (randomised(ChannelsFirst(C)) for _ in range(2))
    assert et.convert(module).replaced and type(module).forward is ChannelsFirst.forward
    norm_calls.clear()
    for x in (torch.randn(2, C, 3, 5), torch.randn(2, C, 3, 5).to(memory_format=torch.channels_last)):
        y = module(x)
        assert torch.equal(y, et.layer_norm(x, (C,), module.weight, module.bias, module.eps, dim=1))
        assert y.stride() == plain(x).stride()
    assert not norm_calls  # without a recipe's checks
    by_hand = randomised(CallsByHand())
    assert et.convert(by_hand).replaced
    norm_calls.clear()
    by_hand(torch.randn(3, C))
    assert norm_calls


def test_own_forward_runs_on_inputs_that_were_not_tried():
    module = randomised(NarrowRMSNorm())
    et.convert(module)
    wide = torch.randn(3, 1)  # the formula broadcasts it; a norm would refuse it
    assert torch.equal(module(wide), NarrowRMSNorm.forward(module, wide))
    half = torch.randn(3, C, dtype=torch.bfloat16)  # float32 weights make its output float32
    assert module(half).dtype == torch.float32 and torch.equal(module(half), NarrowRMSNorm.forward(module, half))
    unused = made(lambda m, x: rms_xhat(x).to(m.weight.dtype))
    assert et.convert(unused).replaced and unused(half).dtype == torch.float32
    gated = look_alikes.Gated()
    et.convert(gated)
    torch.testing.assert_close(gated(half, gate=half), look_alikes.Gated.forward(gated, half, half))
    identity = made(lambda m, x: m.act(NarrowRMSNorm.forward(m, x)), act=nn.Identity())
    assert et.convert(identity).replaced
    identity.act = nn.ReLU()
    assert (identity(torch.randn(3, C)) >= 0).all()
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        module()
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        module(y=wide)
    with pytest.raises(AttributeError):
        module("text")


def test_own_forward_runs_on_nested_tensors():
    module = look_alikes.PlainSubclass(16)
    assert et.convert(module).replaced
    parts = [torch.randn(2, 16), torch.randn(3, 16)]
    y = module(torch.nested.nested_tensor(parts, layout=torch.strided))
    for one, part in zip(y.unbind(), parts, strict=True):
        torch.testing.assert_close(one, F.layer_norm(part, (16,)))


def test_attributes_and_types_may_change_afterwards():
    x = torch.randn(3, C, dtype=torch.float64)
    for make in (ZeroCentred, ScaleShift):
        module = randomised(make())
        et.convert(module)
        module.eps = 1.0
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-6), (torch.bfloat16, 2e-2)):
            given = x.to(dtype)
            expected = make.forward(module.to(dtype), given)
            torch.testing.assert_close(module(given), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("make", [look_alikes.gamma_beta, ZeroCentred, ScaleShift])
def test_the_module_s_own_type_decides(make):
    """PyTorch's layer norm sums a bf16 weight's gradient in bf16, which the trial allows. It does not allow a mean that
    is rounded to bf16 before it is subtracted."""
    module = make().bfloat16()
    if make is ScaleShift:
        assert reason(module).startswith(
            "it is layer_norm(x, scale, shift, eps=eps) in float32, but not in bfloat16: by "
        )
    else:
        assert len(et.convert(module).replaced) == 1


def test_zero_centred_half_weights_keep_their_digits():
    module = ZeroCentred().bfloat16()
    nn.init.constant_(module.weight, 2**-10)  # 1 + 2^-10 is 1 in bf16
    assert et.convert(module).replaced
    x = torch.randn(64, C).bfloat16()
    assert torch.equal(module(x), ZeroCentred.forward(module, x))


def test_weight_and_bias_of_two_types():
    """PyTorch's operator refuses such parameters, but a formula accepts them."""
    x = torch.randn(3, C)
    before, after, swapped = (randomised(ScaleShift()) for _ in range(3))
    assert et.convert(swapped).replaced
    for module in (before, after, swapped):
        module.shift = nn.Parameter(module.shift.detach().double())
    assert et.convert(after).left == ()  # its name has no "norm"
    assert all(torch.equal(module(x), before(x)) for module in (after, swapped))
    assert reason(made(ScaleShift.forward, ScaleShift, shift=before.shift)) == "its weight and bias are not of one type"


# --- trials


@pytest.mark.parametrize("cols", [8, 2**20])
def test_a_trial_is_small(monkeypatch, cols):
    sizes = []
    original = _probe.Prober.see
    see = lambda self, rows, *args, **options: sizes.append(rows.numel()) or original(self, rows, *args, **options)  # noqa: E731
    monkeypatch.setattr(_probe.Prober, "see", see)
    assert et.convert(made(NarrowRMSNorm.forward, weight=look_alikes.ones(cols))).replaced
    assert max(sizes) <= max(cols, 2**15) and sum(sizes) < 2**20 + 7 * cols


def test_a_trial_imports_little():
    code = "import sys, evenorm.torch as et, torch_look_alikes as a; et.convert(a.ScaleShift()); print('sympy' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True
    )
    assert run.stdout == "False\n", run.stderr


def test_warnings_of_a_trial_are_hidden():
    def warning(m, x):
        warnings.warn("seen", stacklevel=1)
        return NarrowRMSNorm.forward(m, x)

    module = made(warning)
    with warnings.catch_warnings(action="error"):
        assert et.convert(module).replaced and not torch.is_warn_always_enabled()
    with pytest.warns(UserWarning, match="seen"):
        module(torch.randn(2, 3, 4, 5, 6, C))


def test_a_trial_leaves_no_trace():
    hooked = []
    module = made(lambda m, x: F.dropout(NarrowRMSNorm.forward(m, x), 0.1, m.training))
    module.register_forward_hook(lambda *args: hooked.append(1))
    attributes, weight, random = dict(vars(module)), module.weight.clone(), torch.get_rng_state()
    with torch.inference_mode():
        et.convert(module)
    assert torch.equal(torch.get_rng_state(), random)
    assert vars(module) == attributes and not hooked
    assert torch.equal(module.weight, weight) and module.weight.grad is None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.device("meta")])
def test_trials_under_modes(mode):
    model = nn.Sequential(ScaleShift(), look_alikes.NoWeightNorm())
    with mode():
        assert len(et.convert(model).replaced) == 2


def test_under_a_16_bit_default_type():
    """Lengths and indices must not pass through the default type: bfloat16 holds neither 1029 nor 1030."""
    module = look_alikes.PlainSubclass(1030)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert et.convert(module).replaced
    finally:
        torch.set_default_dtype(torch.float32)


def test_look_alikes_can_be_left_untried():
    model = nn.Sequential(nn.LayerNorm(C), ScaleShift(), look_alikes.PlainSubclass(), nn.Linear(C, C))
    report = et.convert(model, look_alikes=False)
    assert [one.name for one in report.replaced] == ["0"]
    why = "not exactly torch.nn's, and look_alikes is False"
    assert [(one.name, one.reason) for one in report.left] == [("1", why), ("2", why)]
    assert [type(module) for module in model[1:3]] == [ScaleShift, look_alikes.PlainSubclass]


def test_equal_modules_are_tried_once(monkeypatch):
    tried = []
    original = _trial.settle
    monkeypatch.setattr(_trial, "settle", lambda *args: tried.append(1) or original(*args))
    model = nn.Sequential(*(ScaleShift() for _ in range(5)))
    model[4].eps = 0.5
    et.convert(model)
    assert len(tried) == 2 and {type(model[0]), type(model[3])} == {type(model[1])}
    x = torch.randn(3, C)
    torch.testing.assert_close(model[4](x), ScaleShift.forward(model[4], x))


# --- how modules and their classes are made


class WithKeywords(NarrowRMSNorm):
    def __init_subclass__(cls, *, tag, **options):
        super().__init_subclass__(**options)


class Frozen(NarrowRMSNorm):
    def __setattr__(self, name, value):
        if name == "__class__":
            raise AttributeError("frozen")
        super().__setattr__(name, value)


class Lazy(LazyModuleMixin, nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.UninitializedParameter()

    def initialize_parameters(self, x):
        self.weight.materialize(x.shape[-1:])

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


def sized(m, x):
    return F.layer_norm(x, x.shape[-1:])


ODD = {
    "init_subclass": (type("Tagged", (WithKeywords,), {}, tag=1), "its class cannot have a subclass: TypeError"),
    "lazy": (type("LazyNorm", (Lazy,), {}), "its parameters have no shape yet"),
    "builtin": (lambda: made(torch.relu), "its forward is not written in Python"),
    **{
        repr(size): (
            lambda size=size: made(sized, look_alikes.EmptyNorm, normalized_shape=size),
            "its normalized_shape is",
        )
        for size in ("last", 8.0, -1, (), True, ("a",), {8}, torch.tensor(8), (2**40,))
    },
}


@pytest.mark.parametrize("name", ODD)
def test_unusual_modules_do_not_stop_a_conversion(name):
    make, why = ODD[name]
    report = et.convert(nn.Sequential(make(), nn.LayerNorm(8)))
    assert [one.name for one in report.replaced] == ["1"]
    assert report.left[0].reason.startswith(why), report


def test_lazy_modules_of_other_names_are_not_reported():
    assert et.convert(Lazy()).left == ()


def test_modules_with_frozen_attributes_are_replaced():
    assert et.convert(Frozen()).replaced

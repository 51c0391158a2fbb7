"""evenorm.torch.convert on norms that are not torch.nn's: swapped where they compute one; left where they do not."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)

import copy

import pytest

torch = pytest.importorskip("torch")

import torch_look_alikes as look_alikes
from torch import nn

import evenorm.torch as et

C = look_alikes.C
randomised = look_alikes.randomised


def named(cases):
    cases = [pytest.param(make, said, id=type(make()).__name__) for make, said in cases.items()]
    return pytest.mark.parametrize(("make", "said"), cases)


def values_and_gradients(module, x):
    x = x.clone().requires_grad_()
    y = module(x)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return y, torch.autograd.grad((y * weight).sum(), [x, *module.parameters()])


@named(look_alikes.NORMS)
def test_norms_under_other_names_are_swapped(make, said):
    plain, module = randomised(make()), randomised(make())
    cls, parameters, buffers = type(module), list(module.parameters()), list(module.buffers())
    before = copy.deepcopy(module.state_dict())
    report = et.convert(module)
    assert [one.new for one in report.replaced] == [f"evenorm.torch.{said}"], report
    assert isinstance(module, cls) and type(module).__name__ == f"Evenorm{cls.__name__}"
    assert [id(t) for t in (*module.parameters(), *module.buffers())] == [id(t) for t in (*parameters, *buffers)]
    for key, value in before.items():
        assert torch.equal(module.state_dict()[key], value)
    shape = (4, 6) if cls is look_alikes.TwoAxesNorm else (C,)
    x = torch.randn(7, 3, *shape)
    y, gradients = values_and_gradients(module, x)
    expected, expected_gradients = values_and_gradients(plain, x)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    for a, b in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@named(look_alikes.OTHERS)
def test_others_are_left(make, said):
    module = make()
    report = et.convert(module)
    assert type(module) is make and report.replaced == ()
    assert len(report.left) == 1 and said in report.left[0].reason, report


def test_look_alikes_are_evenorm_s(monkeypatch):
    from evenorm.torch import _look_alikes

    model = nn.Sequential(look_alikes.ScaleShift(), look_alikes.NarrowRMSNorm())
    et.convert(model)
    calls = []
    for name in ("layer_norm", "rms_norm"):
        original = getattr(_look_alikes, name)
        monkeypatch.setattr(_look_alikes, name, lambda *a, f=original, n=name: calls.append(n) or f(*a))
    model(torch.randn(3, C))
    assert calls == ["layer_norm", "rms_norm"]
    calls.clear()
    model[1](x=torch.randn(3, C))  # by name
    assert calls == ["rms_norm"]


def test_own_forward_runs_where_nothing_was_agreed(monkeypatch):
    module = randomised(look_alikes.NarrowRMSNorm())
    et.convert(module)
    own = look_alikes.NarrowRMSNorm.forward
    wide = torch.randn(3, 1)  # its formula broadcasts it; a norm would not
    assert torch.equal(module(wide), own(module, wide))
    half = torch.randn(3, C, dtype=torch.bfloat16)  # float32 weights make its output float32
    assert module(half).dtype == torch.float32 and torch.equal(module(half), own(module, half))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        module()
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        module(y=wide)
    with pytest.raises(AttributeError):
        module("text")


def test_eps_set_anew_is_followed():
    module = look_alikes.ScaleShift()
    et.convert(module)
    module.eps = 1.0
    x = torch.randn(3, C)
    torch.testing.assert_close(module(x), look_alikes.ScaleShift.forward(module, x))


def test_type_changed_afterwards():
    for make in (look_alikes.ZeroCentred, look_alikes.ScaleShift):
        module = randomised(make())
        et.convert(module)
        x = torch.randn(3, C, dtype=torch.float64)
        module.double()
        torch.testing.assert_close(module(x), make.forward(module, x), rtol=1e-6, atol=1e-6)
        module.bfloat16()
        x = x.bfloat16()
        torch.testing.assert_close(module(x), make.forward(module, x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("make", [look_alikes.GammaBeta, look_alikes.ZeroCentred, look_alikes.ScaleShift])
def test_own_type_decides(make):
    """PyTorch's own layer norm adds up a bf16 weight's gradient in bf16: that does not part it from evenorm's. A mean
    rounded to bf16 before it is subtracted does."""
    module = make().bfloat16()
    report = et.convert(module)
    if make is not look_alikes.ScaleShift:
        assert len(report.replaced) == 1, report
        return
    assert type(module) is make
    assert report.left[0].reason.startswith(
        "it is layer_norm(x, scale, shift, eps=eps) in float32, but not in bfloat16: by "
    )


def test_zero_centred_half_weights_keep_their_digits():
    module = look_alikes.ZeroCentred().bfloat16()
    with torch.no_grad():
        module.weight.fill_(2**-10)  # 1 + 2^-10 is 1 in bf16
    et.convert(module)
    assert "1 + weight" in type(module).evenorm_recipe.__str__()
    x = torch.randn(64, C).bfloat16()
    assert torch.equal(module(x), look_alikes.ZeroCentred.forward(module, x))


def test_a_trial_leaves_no_trace():
    class Counting(look_alikes.WithDropout):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    module, hooked = Counting(), []
    module.register_forward_hook(lambda *args: hooked.append(1))
    attributes, state = dict(vars(module)), copy.deepcopy(module.state_dict())
    random = torch.get_rng_state()
    with torch.inference_mode():
        et.convert(module)
    assert torch.equal(torch.get_rng_state(), random)
    assert vars(module) == attributes and module.calls == 0 and not hooked
    assert torch.equal(module.weight, state["weight"]) and module.weight.grad is None


def test_inside_no_grad_and_inference_mode():
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert et.convert(look_alikes.ScaleShift()).replaced


def test_look_alikes_can_be_left_untried():
    model = nn.Sequential(nn.LayerNorm(C), look_alikes.ScaleShift(), look_alikes.PlainSubclass(C), nn.Linear(C, C))
    report = et.convert(model, look_alikes=False)
    assert [one.name for one in report.replaced] == ["0"]
    assert [(one.name, one.reason) for one in report.left] == [
        ("1", "not exactly torch.nn's, and look_alikes is False"),
        ("2", "not exactly torch.nn's, and look_alikes is False"),
    ]
    assert [type(module) for module in model[1:3]] == [look_alikes.ScaleShift, look_alikes.PlainSubclass]


def test_equal_modules_are_tried_once(monkeypatch):
    from evenorm.torch import _trial

    tried = []
    original = _trial.settle
    monkeypatch.setattr(_trial, "settle", lambda *args: tried.append(1) or original(*args))
    model = nn.Sequential(*(look_alikes.ScaleShift() for _ in range(5)))
    model[4].eps = 0.5
    et.convert(model)
    assert len(tried) == 2 and {type(model[0]), type(model[3])} == {type(model[1])}
    x = torch.randn(3, C)
    torch.testing.assert_close(model[4](x), look_alikes.ScaleShift.forward(model[4], x))


def test_meta_device_is_tried_on_the_cpu():
    with torch.device("meta"):
        model = nn.Sequential(nn.LayerNorm(C), look_alikes.ScaleShift())
    assert len(et.convert(model).replaced) == 2
    assert model(torch.empty(3, C, device="meta")).shape == (3, C)
    randomised(model.to_empty(device="cpu"))
    assert model(torch.randn(3, C)).shape == (3, C)

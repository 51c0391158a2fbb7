"""evenorm.torch.inspect: its figures against an independent computation, and that it leaves models as they are."""

import contextlib
import copy
import json
import math
import random
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch_look_alikes import ZeroCentred, randomised

import evenorm.torch as et
from evenorm.torch import _inspect

BF16 = torch.bfloat16


def wide(t):
    return t.detach().to(torch.float64).numpy().astype(np.longdouble)


def figures(x, y, weight, bias, eps, axes, rms=False):
    """mean/std, |x|/std and the error in u, in NumPy's longdouble. weight and bias broadcast to x."""
    half = torch.finfo(y.dtype).eps / 2
    x, y, weight, bias = wide(x), wide(y), wide(weight), wide(bias)
    mean = x.mean(axes, keepdims=True)
    centred = x if rms else x - mean
    std = np.sqrt((centred * centred).mean(axes, keepdims=True) + np.longdouble(eps))
    xhat = centred / std
    scale = abs(weight) * abs(xhat).max(axes, keepdims=True) + abs(bias)
    error = abs(y - (xhat * weight + bias)) / (scale * half)
    return [float(one.max()) for one in (abs(mean) / std, abs(x) / std, error)]


ZERO = torch.zeros(())
CHANNELS = (-1, 1, 1)
# The norm, x's shape, weight and bias that broadcast to x, the normalised axes, and eps.
NORMS = {
    "layer": (lambda: nn.LayerNorm(24), (3, 5, 24), lambda n: (n.weight, n.bias), (-1,), 1e-5),
    "layer of two axes": (lambda: nn.LayerNorm((4, 6)), (3, 4, 6), lambda n: (n.weight, n.bias), (-2, -1), 1e-5),
    "layer of one element": (lambda: nn.LayerNorm((6, 1)), (3, 6, 1), lambda n: (n.weight, n.bias), (-2, -1), 1e-5),
    "bf16": (lambda: nn.LayerNorm(24, dtype=BF16), (3, 5, 24), lambda n: (n.weight, n.bias), (-1,), 1e-5),
    "rms": (lambda: nn.RMSNorm(24), (7, 24), lambda n: (n.weight, ZERO), (-1,), 2.0**-23),
    "1 + weight": (ZeroCentred, (7, 24), lambda n: (1 + n.weight.double(), ZERO), (-1,), 1e-6),
    "group": (
        lambda: nn.GroupNorm(3, 12),
        (4, 3, 4, 5, 2),
        lambda n: (n.weight.view(3, 4, 1, 1), n.bias.view(3, 4, 1, 1)),
        (2, 3, 4),
        1e-5,
    ),
    "instance": (
        lambda: nn.InstanceNorm2d(6, affine=True),
        (4, 6, 5, 3),
        lambda n: (n.weight.view(CHANNELS), n.bias.view(CHANNELS)),
        (2, 3),
        1e-5,
    ),
    "instance of one sample": (
        lambda: nn.InstanceNorm2d(6, affine=True),
        (6, 5, 3),
        lambda n: (n.weight.view(CHANNELS), n.bias.view(CHANNELS)),
        (1, 2),
        1e-5,
    ),
}


@pytest.mark.parametrize("mean", [0.0, 300.0])
@pytest.mark.parametrize("name", NORMS)
def test_figures_equal_an_independent_computation(name, mean, monkeypatch):
    make, shape, parameters, axes, eps = NORMS[name]
    norm = randomised(make())
    dtype = BF16 if name == "bf16" else torch.float32
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) + mean).to(dtype)
    given = x.reshape(4, 12, 5, 2) if name == "group" else x
    converted = copy.deepcopy(norm)
    et.convert(converted)
    expected = figures(x, norm(given).reshape(shape), *parameters(norm), eps, axes, name in ("rms", "1 + weight"))
    ours = figures(x, converted(given).reshape(shape), *parameters(norm), eps, axes, name in ("rms", "1 + weight"))
    for most in (2**20, 50):  # elements that are compared at once
        monkeypatch.setattr(_inspect, "MOST_ELEMENTS", most)
        (found,) = et.inspect(nn.Sequential(norm), given).norms
        measured = (found.mean_over_std, found.x_over_std, found.error, found.evenorm_error)
        assert measured == pytest.approx((*expected, ours[2]), rel=1e-5), found
        columns = math.prod(shape[axis] for axis in axes)
        assert (found.rows, found.columns) == (x.numel() // columns, columns)
        assert found.name == "0" and found.calls == 1 and found.same_bits_alone is True and found.reason is None
        assert found.types == ("bf16" if name == "bf16" else "f32")
    (found,) = et.inspect(converted, given).norms
    assert found.error == found.evenorm_error and found.cls.startswith("evenorm.torch.")


def test_float64():
    norm, x = nn.LayerNorm(64, dtype=torch.float64), torch.randn(30, 64, dtype=torch.float64) + 1e6
    (found,) = et.inspect(norm, x).norms
    expected = figures(x, norm(x), norm.weight, norm.bias, norm.eps, (-1,))[2]
    assert found.types == "f64" and found.evenorm_error < 10
    assert expected > 100 and found.error == pytest.approx(expected, abs=10)


FAMILIES = {"Bert": "layer", "GPT2": "layer", "Llama": "rms", "ViT": "layer", "ConvNext": "layer"}


@pytest.mark.parametrize("kind", FAMILIES)
def test_models(kind):
    pytest.importorskip("transformers")
    from test_torch_convert_models import MODELS, is_norm, random_model

    _, inputs, count = MODELS[kind]
    model, given, seen = random_model(kind), inputs(), {}
    report = et.inspect(model, **given)
    assert len(report.norms) == count and report.warnings == ()
    errors = [one.error for one in report.norms]
    assert errors == sorted(errors, reverse=True)

    def see(module, args, y):
        seen[module] = args[0], y

    hooks = [module.register_forward_hook(see) for module in model.modules() if is_norm(module)]
    model(**given)
    for hook in hooks:
        hook.remove()
    for one in report.norms:
        norm = model.get_submodule(one.name)
        x, y = seen[norm]
        if getattr(norm, "data_format", "") == "channels_first":
            x, y = x.movedim(1, -1), y.movedim(1, -1)
        bias = ZERO if getattr(norm, "bias", None) is None else norm.bias
        eps = norm.variance_epsilon if kind == "Llama" else norm.eps
        expected = figures(x, y, norm.weight, bias, eps, (-1,), kind == "Llama")
        assert (one.mean_over_std, one.x_over_std, one.error) == pytest.approx(expected, rel=1e-6), one
        assert one.formula.startswith(f"{FAMILIES[kind]}_norm(x, weight") and f"eps={eps}" in one.formula
        assert one.rows * one.columns == x.numel() and 0 < one.evenorm_error < 4 and 0 < one.share < 1


class Awkward(nn.Module):
    """Random, stateful, in place: all that a forward pass may change."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8, max_norm=0.5)
        self.norm, self.batch, self.drop = nn.LayerNorm(8), nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.calls = 0

    def forward(self, tokens, x, *, scale):
        self.calls += 1
        self.last = self.norm(self.embedding(tokens) + x.mul_(2))
        noise = torch.rand(8) + random.random() + np.random.rand()
        return self.drop(self.batch(self.last)) * scale + noise


def state(model):
    tensors = [(t.clone(), t._version) for t in (*model.parameters(), *model.buffers())]
    own = [{k: v for k, v in vars(m).items() if k != "_modules"} for m in model.modules()]
    hooks = [[list(v) for k, v in vars(m).items() if "hooks" in k] for m in model.modules()]
    return tensors, [list(one) for one in own], hooks, [m.training for m in model.modules()], model.calls


def test_the_model_its_inputs_and_random_states_are_unchanged():
    torch.manual_seed(3)
    model = Awkward()
    with torch.no_grad():
        model.embedding.weight.mul_(10)  # beyond max_norm
    seen = []
    model.norm.register_forward_pre_hook(lambda module, args: (args[0] + 100,))
    model.norm.register_forward_hook(lambda module, args, y: y * 2)
    model.norm.register_forward_hook(lambda module, args, y: seen.append(y.shape))
    tokens, x = torch.arange(10), torch.randn(10, 8)
    x.requires_grad_()
    inputs = (tokens, x * 1)  # not a leaf
    kept, before = inputs[1].clone(), state(model)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    report = et.inspect(model, *inputs, scale=torch.tensor(3.0))
    after = state(model)
    for (t, _), (u, _) in zip(before[0], after[0], strict=True):
        assert torch.equal(t, u)
    assert before[1:] == after[1:] and not hasattr(model, "last")
    assert torch.equal(inputs[1], kept) and all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state()[1:], states[2][1:], strict=True))
    # The model's own hooks ran: they changed x before the norm, but y only after it.
    (found,) = report.norms
    assert len(seen) >= 2 and found.mean_over_std > 50 and found.error < 1e4


def test_hooks_are_removed_if_the_model_raises():
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(9, 8))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        et.inspect(model, torch.randn(2, 8))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Odd(nn.Module):
    """Changes itself in forward, and calls a norm that raises."""

    def __init__(self):
        super().__init__()
        self.norms, self.narrow = nn.ModuleList([nn.LayerNorm(8)]), nn.LayerNorm(7)
        self.made, self.cache = None, torch.zeros(4, 8)

    def forward(self, x):
        if self.made is None:
            self.made = nn.Linear(8, 8)
        self.norms.append(nn.LayerNorm(8))
        self.register_forward_hook(lambda *_: None)
        self.cache.copy_(x)
        with contextlib.suppress(RuntimeError):
            self.narrow(x)
        return self.norms[0](self.made(x))


def test_a_model_that_changes_itself_and_a_norm_that_raises():
    model = Odd()
    report = et.inspect(model, torch.randn(4, 8))
    assert model.made is None and len(model.norms) == 1 and not model._forward_hooks and not model.cache.any()
    assert list(model.state_dict()) == ["norms.0.weight", "norms.0.bias", "narrow.weight", "narrow.bias"]
    measured, raised = report.norms
    assert 0 < measured.share < 1 and raised.share == 0 and raised.reason == "no call of it was completed"


class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return torch.func.vmap(self.norm)(x)


def test_what_is_not_measured_has_a_reason():
    for norm, shape in ((nn.LayerNorm(0), (3, 0)), (nn.LayerNorm((2, 0)), (3, 2, 0)), (nn.GroupNorm(2, 4), (2, 4, 0))):
        assert et.inspect(norm, torch.zeros(shape)).norms[0].reason == "its x had no elements"
    assert "convert leaves" in et.inspect(Mapped(), torch.randn(3, 4, 8)).norms[0].reason
    scripted = nn.Sequential(torch.jit.script(nn.LayerNorm(3)), nn.LayerNorm(3))
    measured, left = et.inspect(scripted, torch.randn(2, 3)).norms
    assert measured.error < 4 and left.reason
    with pytest.raises(TypeError, match="inputs should be such that copy.deepcopy"):
        et.inspect(nn.LayerNorm(3), (torch.ones(3) for _ in range(2)))


def test_group_norm_in_channels_last_order_is_computed_alone_in_it():
    x = torch.randn(1, 12, 5, 5).contiguous(memory_format=torch.channels_last)
    assert et.inspect(nn.GroupNorm(4, 12), x).norms[0].same_bits_alone


@pytest.mark.parametrize(("size", "eps"), [(1e200, 1e-5), (1e-200, 0.0), (1e-200, 1e-300)])
def test_float64_rows_far_from_1(size, eps):
    x = torch.randn(5, 24, dtype=torch.float64) * size
    converted = et.LayerNorm(24, eps=eps, dtype=torch.float64)
    (found,) = et.inspect(converted, x).norms
    assert 0 < found.error < 8 and found.x_over_std < 6


class SleepyNorm(nn.Module):
    """No norm, in spite of its name."""

    def forward(self, x):
        time.sleep(0.03)
        return x * 2


class Sleep(nn.Module):
    def forward(self, x):
        time.sleep(0.09)
        return x


def test_shares_of_time_and_a_reason():
    report = et.inspect(nn.Sequential(SleepyNorm(), Sleep()), torch.randn(3, 8))
    (found,) = report.norms
    assert 0.15 < found.share < 0.4 and report.seconds > 0.12
    assert found.seconds / report.seconds == pytest.approx(found.share, rel=0.3)
    assert found.formula is found.error is None and "on random input it differs by" in found.reason
    assert found.reason.split()[0] in repr(report) and "error" not in repr(report)


def test_a_model_without_norms():
    report = et.inspect(nn.Linear(4, 8), torch.randn(2, 4))
    assert report.norms == () and report.seconds > 0
    assert repr(report).startswith("evenorm.torch.inspect: 0 norms")


class Repeated(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.unused = nn.LayerNorm(8), nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(x) + self.norm(x + 1e4) + self.norm(x[:1])


def test_several_calls_and_none():
    model, x = Repeated(), torch.randn(5, 8)
    worst = et.inspect(model.norm, x + 1e4).norms[0]
    report = et.inspect(model, x)
    found, unused = report.norms
    assert found.calls == 3 and found.rows == 11 and "norm (3 calls)" in repr(report)
    assert (found.error, found.mean_over_std) == (worst.error, worst.mean_over_std) and found.error > 1e3
    assert found.evenorm_error < 4
    assert (unused.name, unused.calls, unused.error, unused.reason) == ("unused", 0, None, "it was not called")


class ByBatch(nn.RMSNorm):
    """Computes single rows in float64."""

    def forward(self, x):
        wide = x.double() if x.shape[0] == 1 else x.float()
        return (self.weight * wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()).to(x.dtype)


def test_bits_that_depend_on_the_batch():
    norm, x = ByBatch(64, eps=1e-5), torch.randn(40, 64)
    model = nn.Sequential(norm)
    model.forward = lambda x: norm(x) + norm(x[:1])
    before = et.inspect(model, x)
    assert before.norms[0].same_bits_alone is False and "differ" in repr(before)
    et.convert(norm)
    assert et.inspect(norm, x).norms[0].same_bits_alone is True


def test_other_arguments_are_left_to_the_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8, elementwise_affine=False)

        def forward(self, x):
            return self.norm(x.to("meta"))

    (found,) = et.inspect(Net(), torch.randn(2, 8)).norms
    assert found.calls == 1 and found.error is None and "leaves to its own forward" in found.reason


def test_errors_that_are_not_finite_and_json():
    report = et.inspect(nn.LayerNorm(64), 1e30 * torch.randn(3, 64))
    found = json.loads(report.json())
    assert found["norms"][0]["error"] == "inf" and found["norms"][0]["evenorm_error"] < 4
    assert found["norms"][0]["formula"] == report.norms[0].formula and found["seconds"] == report.seconds
    assert et.inspect(nn.LayerNorm(64, eps=0.0), 1e-25 * torch.randn(3, 64)).norms[0].error == math.inf  # y is infinite
    not_finite = torch.randn(3, 64)
    not_finite[1, 2] = math.nan
    assert et.inspect(nn.LayerNorm(64), not_finite).norms[0].error < 10  # of the other rows
    (empty,) = et.inspect(nn.LayerNorm(64), torch.zeros(0, 64)).norms
    assert (empty.calls, empty.error, empty.reason) == (1, None, "its x had no elements")


def test_the_table_fits():
    layers = [nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(3)]
    model = nn.ModuleDict({"a_very_long_name_" * 9: nn.Sequential(*layers), "RMSNormGated": SleepyNorm()})
    model.forward = lambda x: model["RMSNormGated"](model["a_very_long_name_" * 9](x))
    lines = repr(et.inspect(model, torch.randn(9, 8) + 1e5)).splitlines()
    assert max(map(len, lines)) <= 120 and sum("very_long_name" in line for line in lines) == 3


def test_a_compiled_model_runs_uncompiled():
    def fail(graph, inputs):
        raise AssertionError("compiled")

    model = torch.compile(nn.Sequential(nn.LayerNorm(8)), backend=fail)
    (found,) = et.inspect(model, torch.randn(2, 8)).norms
    assert found.name == "_orig_mod.0" and found.calls == 1


def test_arguments():
    with pytest.raises(TypeError, match=r"model is a function, but must be a torch.nn.Module"):
        et.inspect(lambda x: x, torch.randn(2))
    with pytest.raises(ValueError, match=r"0.weight has no shape yet"):
        et.inspect(nn.Sequential(nn.LazyLinear(8), nn.LayerNorm(8)), torch.randn(2, 8))

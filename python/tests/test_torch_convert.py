"""evenorm.torch.convert on torch.nn's norms: what it replaces, keeps, leaves and reports."""

import copy
import pickle
import warnings
import weakref
from types import MethodType

import pytest
import torch
import torch_look_alikes as look_alikes
from torch import nn
from torch.nn.utils import parametrize
from torch_look_alikes import C, ScaleShift, randomised

import evenorm.torch as et

EXACT = pytest.mark.parametrize(("old", "new"), [(nn.LayerNorm, et.LayerNorm), (nn.RMSNorm, et.RMSNorm)])


def names(report):
    return [one.name for one in report.replaced]


def reasons(report):
    return [one.reason for one in report.left]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8, eps=1e-6)) for _ in range(2)])
        self.by_name = nn.ModuleDict({"a": nn.RMSNorm(8), "plain": nn.LayerNorm(8, elementwise_affine=False)})
        self.final = nn.LayerNorm(8, bias=False)
        self.tied = self.final
        self.unregistered = [self.final]

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        for norm in self.by_name.values():
            x = norm(x)
        return self.tied(self.final(x))


def test_model_is_converted_in_place():
    model = randomised(Model())
    modules, parameters, plain = dict(model.named_modules()), dict(model.named_parameters()), copy.deepcopy(model)
    report = et.convert(model)
    assert report.model is model
    assert names(report) == ["blocks.0.1", "blocks.1.1", "by_name.a", "by_name.plain", "final"]
    assert report.left == () and report.warnings == ()
    assert dict(model.named_modules()) == modules
    assert all(value is parameters[name] for name, value in model.named_parameters())
    assert type(model.blocks[0][1]) is et.LayerNorm and type(model.by_name["a"]) is et.RMSNorm
    assert model.tied is model.final is model.unregistered[0] and type(model.tied) is et.LayerNorm
    assert repr(model) == repr(plain) and list(model.state_dict()) == list(plain.state_dict())
    x = torch.randn(5, 6)
    torch.testing.assert_close(model(x), plain(x), rtol=1e-5, atol=1e-6)
    assert names(et.revert(model)) == names(report)
    assert list(map(type, model.modules())) == list(map(type, plain.modules()))


@EXACT
def test_the_model_itself(old, new):
    norm = old(8)
    report = et.convert(norm)
    assert report.model is norm and type(norm) is new and names(report) == [""]
    assert repr(report).splitlines()[1].startswith("  replaced  (the model)  torch.nn.")


@EXACT
def test_keeps_hooks_attributes_and_mode(old, new):
    norm = old(4).eval()
    norm.weight.requires_grad_(False)
    norm.note, norm.dim, norm.zero_centered = ["kept"], 4, True  # names that subclasses use
    norm.register_buffer("extra", torch.arange(3), persistent=False)
    called = []
    norm.register_forward_pre_hook(lambda *args: called.append("forward"))
    norm.register_full_backward_hook(lambda *args: called.append("backward"))
    norm.register_state_dict_pre_hook(lambda *args: called.append("state_dict"))
    attributes, reference = dict(vars(norm)), weakref.ref(norm)
    et.convert(norm)
    assert vars(norm) == attributes and all(vars(norm)[key] is value for key, value in attributes.items())
    assert type(reference()) is new and not norm.training and not norm.weight.requires_grad
    norm(torch.randn(3, 4, requires_grad=True)).sum().backward()
    norm.state_dict()
    assert called == ["forward", "backward", "state_dict"]


def test_converting_twice_leaves_evenorms_norms():
    model = nn.Sequential(nn.LayerNorm(C), ScaleShift(), et.RMSNorm(C))
    first, second = et.convert(model), et.convert(model)
    assert names(first) == ["0", "1"] and reasons(first) == ["already evenorm's"]
    assert second.replaced == () and reasons(second) == ["already evenorm's"] * 3
    assert names(et.revert(model)) == ["0", "1", "2"]
    assert [type(norm) for norm in model] == [nn.LayerNorm, ScaleShift, nn.RMSNorm]
    assert names(et.convert(model)) == ["0", "1", "2"]


REVERTED = {
    "torch.nn.LayerNorm": lambda: et.LayerNorm(C, dim=-1),
    "torch.nn.RMSNorm": lambda: et.RMSNorm(C),
    "torch.nn.GroupNorm": lambda: et.GroupNorm(2, C),
    "torch.nn.InstanceNorm1d": lambda: et.InstanceNorm1d(C),
    "torch.nn.InstanceNorm2d": lambda: et.InstanceNorm2d(C, affine=True),
    "torch.nn.InstanceNorm3d": lambda: et.InstanceNorm3d(C, track_running_stats=True),
    "torch.nn's has no dim=1": lambda: et.LayerNorm(C, dim=1),
    "torch.nn's has no bias": lambda: et.RMSNorm(C, bias=True),
    "torch.nn's is not zero-centred": lambda: et.GroupNorm(2, C, zero_centered=True),
    "torch.nn has no such module": lambda: et.LayerNormGRU(4, C),
}


@pytest.mark.parametrize("expected", REVERTED)
def test_constructed_modules_get_pytorchs_class(expected):
    norm = REVERTED[expected]()
    cls, report = type(norm), et.revert(norm)
    assert [one.new for one in report.replaced] + reasons(report) == [expected]
    assert type(norm) is (cls if report.left else getattr(nn, cls.__name__))


def test_copies_and_pickles():
    model = randomised(nn.Sequential(nn.LayerNorm(C), ScaleShift(), look_alikes.NoWeightNorm()))
    et.convert(model)
    x = torch.randn(3, C)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [type(a) for a in other] == [type(a) for a in model]
        assert torch.equal(other(x), model(x))
        assert not {id(p) for p in other.parameters()} & {id(p) for p in model.parameters()}


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def test_parametrized_norms_are_replaced_below_their_parametrizations():
    norm, twin = (parametrize.register_parametrization(nn.LayerNorm(4), "weight", Doubled()) for _ in range(2))
    original = norm.parametrizations.weight.original
    x = torch.randn(3, 4)
    expected = norm(x)
    report = et.convert(norm)
    assert len(report.replaced) == 1 and isinstance(norm, et.LayerNorm) and not isinstance(twin, et.LayerNorm)
    assert norm.parametrizations.weight.original is original
    norm(x).sum().backward()
    assert original.grad is not None
    assert reasons(et.convert(norm)) == ["already evenorm's"]
    torch.testing.assert_close(copy.deepcopy(norm)(x), expected)
    assert names(et.revert(norm)) == [""] and not isinstance(norm, et.LayerNorm) and torch.equal(norm(x), expected)
    et.convert(norm)
    parametrize.remove_parametrizations(norm, "weight")
    assert type(norm) is et.LayerNorm
    torch.testing.assert_close(norm(x), expected)
    assert type(parametrize.remove_parametrizations(twin, "weight")) is nn.LayerNorm


def test_forward_replaced_on_the_object_is_left():
    norm, look_alike = nn.LayerNorm(4), ScaleShift()
    norm.forward = look_alike.forward = lambda x: x + 1
    report = et.convert(nn.Sequential(norm, look_alike))
    assert type(norm) is nn.LayerNorm and type(look_alike) is ScaleShift
    own = "its forward or __call__ is not that of its class"
    assert reasons(report) == ["its forward was replaced on the object itself", own]


def test_forward_of_the_class_on_the_object_is_no_other():
    model = nn.Sequential(nn.LayerNorm(C), ScaleShift(), ScaleShift())
    model[2].forward = ScaleShift().forward  # of another object
    for act in (et.convert, et.revert):
        for norm in model[:2]:
            norm.forward = norm.forward
        assert et.inspect(model[:1], torch.randn(9, C) + 1e4).norms[0].evenorm_error < 4  # that of evenorm's forward
        assert names(act(model)) == ["0", "1"]
        assert all(norm.forward == MethodType(type(norm).forward, norm) for norm in model[:2])


def test_modules_with_hooks_of_opacus_are_left():
    def hook(module, inputs, output):
        pass

    hook.__module__ = "opacus.grad_sample.grad_sample_module"
    model = nn.Sequential(nn.LayerNorm(C), ScaleShift())
    for module in model:
        module.register_forward_hook(hook)
    assert reasons(et.convert(model)) == ["has hooks of opacus, which know it by its class"] * 2


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
def test_torchscript_is_left():
    report = et.convert(torch.jit.script(nn.Sequential(nn.LayerNorm(4))))
    assert not report.replaced and reasons(report) == ["compiled by TorchScript"]


def test_compiled_models_are_compiled_again():
    graphs = []

    def backend(graph, example):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(C, C), nn.LayerNorm(C), look_alikes.NarrowRMSNorm())
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(3, C)
    expected = compiled(x)
    et.convert(compiled)
    torch.testing.assert_close(compiled(x), expected)
    assert len(graphs) == 2
    assert sum("evenorm" in str(node.target) for node in graphs[1].graph.nodes) == 2
    torch._dynamo.reset()
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(x), model(x))


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
def test_exported_and_traced():
    model = nn.Sequential(nn.LayerNorm(C), look_alikes.NarrowRMSNorm(), look_alikes.NoWeightNorm())
    et.convert(model)
    x = torch.randn(3, C)
    expected = model(x)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert sum("evenorm" in str(node.target) for node in exported.graph.nodes) == 3
    assert torch.equal(exported.module()(x), expected)
    traced = torch.jit.trace(model, (x,))
    assert str(traced.inlined_graph).count("evenorm::") == 3
    assert torch.equal(traced(x), expected)


# --- TransformerEncoderLayer


@pytest.fixture
def calls(monkeypatch):
    counted = []
    original = et.LayerNorm.forward
    monkeypatch.setattr(et.LayerNorm, "forward", lambda self, x: counted.append(1) or original(self, x))
    return counted


def encoder_layer(cls=nn.TransformerEncoderLayer, **options):
    return cls(**{"d_model": 16, "nhead": 4, "dim_feedforward": 8, "batch_first": True, "dropout": 0.0, **options})


def test_encoder_layer_with_a_fast_path_gives_a_warning(calls, monkeypatch):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(encoder_layer(), 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        expected = model.eval()(x)
    with pytest.warns(UserWarning, match=r"layers\.\* \(2\): in evaluation without .*does not call evenorm's"):
        report = et.convert(model)
    assert len(report.replaced) == 5 and len(report.warnings) == 1 and report.warnings[0] in repr(report)
    for enabled, count in ((True, 1), (False, 5)):  # the encoder's own norm; and the four in its layers
        monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", enabled)
        calls.clear()
        with torch.no_grad():
            torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
        assert len(calls) == count
    calls.clear()
    model.train()(x).sum().backward()
    assert len(calls) == 5


def test_encoder_layer_calls_zero_centred_norms():
    layer = encoder_layer()
    layer.norm1, layer.norm2 = (et.LayerNorm(16, zero_centered=True) for _ in range(2))
    expected = layer(x := torch.randn(2, 5, 16))
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x), expected)


class OwnForward(nn.TransformerEncoderLayer):
    def forward(self, x):
        return self.norm2(self.norm1(x))


@pytest.mark.parametrize(
    "options",
    [{"batch_first": False}, {"nhead": 1}, {"bias": False}, {"activation": nn.functional.silu}, {"cls": OwnForward},
     {"cls": nn.TransformerDecoderLayer}],
)  # fmt: skip
def test_encoder_layer_without_a_fast_path_gives_no_warning(options, calls):
    layer = encoder_layer(**options).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = et.convert(layer)
    assert report.warnings == () and len(report.replaced) in (2, 3)
    if not isinstance(layer, nn.TransformerDecoderLayer):
        with torch.no_grad():
            layer(torch.randn(2, 5, 16))
        assert len(calls) == 2


# --- the report, and arguments


def test_report_is_a_table():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.LayerNorm(C)) for _ in range(3)))
    model.append(look_alikes.LayerScale())
    model.append(ScaleShift())
    report = et.convert(model)
    lines = repr(report).splitlines()
    assert lines[:3] == [
        "evenorm.torch.convert: 4 replaced, 1 left",
        "  replaced  *.1 (3)  torch.nn.LayerNorm -> evenorm.torch.LayerNorm",
        "  replaced  4        ScaleShift -> evenorm.torch.layer_norm(x, scale, shift, eps=eps)",
    ]
    assert lines[3].startswith("  left      3  LayerScale: on random input it differs by ")
    assert (report.replaced[1].name, report.replaced[1].old) == ("1.1", "torch.nn.LayerNorm")
    assert (report.left[0].name, report.left[0].old) == ("3", "LayerScale")
    with pytest.raises(TypeError, match="converted in place"):
        report(torch.randn(2, C))


def test_wrong_arguments():
    for model, message in (
        (nn.LayerNorm, "^model is the class LayerNorm, but must be a torch.nn.Module: an instance of it$"),
        ([nn.LayerNorm(3)], "^model is a list, but must be a torch.nn.Module$"),
    ):
        with pytest.raises(TypeError, match=message):
            et.convert(model)
    with pytest.raises(TypeError, match="^look_alikes is a int, but must be a bool$"):
        et.convert(nn.LayerNorm(3), look_alikes=1)

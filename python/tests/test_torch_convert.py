"""evenorm.torch.convert: what it swaps, what it keeps of it, what it leaves, and what it says."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import copy
import pickle
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch")

import torch_look_alikes as look_alikes
from torch import nn
from torch.nn.utils import parametrize

import evenorm.torch as et

EXACT = [(nn.LayerNorm, et.LayerNorm), (nn.RMSNorm, et.RMSNorm)]
C = look_alikes.C
randomised = look_alikes.randomised


def names(report):
    return [one.name for one in report.replaced]


# --- torch.nn's own


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


def test_model_is_swapped_in_place_and_stays_what_it_is():
    model = randomised(Model())
    before = {name: module for name, module in model.named_modules()}
    parameters = {name: value for name, value in model.named_parameters()}
    plain = copy.deepcopy(model)
    report = et.convert(model)
    assert report.model is model
    assert names(report) == ["blocks.0.1", "blocks.1.1", "by_name.a", "by_name.plain", "final"]
    assert report.left == () and report.warnings == ()
    assert {name: module for name, module in model.named_modules()} == before
    assert all(value is parameters[name] for name, value in model.named_parameters())
    assert type(model.blocks[0][1]) is et.LayerNorm and type(model.by_name["a"]) is et.RMSNorm
    assert model.tied is model.final is model.unregistered[0] and type(model.tied) is et.LayerNorm
    assert (model.final.normalized_shape, model.blocks[1][1].eps, model.final.bias) == ((8,), 1e-6, None)
    assert repr(model) == repr(plain)
    assert list(model.state_dict()) == list(plain.state_dict())
    x = torch.randn(5, 6)
    torch.testing.assert_close(model(x), plain(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("old", "new"), EXACT)
def test_the_model_itself(old, new):
    norm = old(8)
    report = et.convert(norm)
    assert report.model is norm and type(norm) is new and names(report) == [""]
    assert repr(report).splitlines()[1].startswith("  replaced  (the model)  torch.nn.")


@pytest.mark.parametrize(("old", "new"), EXACT)
def test_keeps_hooks_attributes_and_mode(old, new):
    norm = old(4).eval()
    norm.weight.requires_grad_(False)
    norm.note = ["kept"]
    norm.register_buffer("extra", torch.arange(3), persistent=False)
    called = []

    def seen(name):
        return lambda *args: called.append(name)

    norm.register_forward_pre_hook(seen("pre"))
    norm.register_forward_hook(lambda module, args, output: output + 1)
    norm.register_full_backward_pre_hook(seen("backward pre"))
    norm.register_full_backward_hook(seen("backward"))
    norm.register_state_dict_pre_hook(seen("state_dict pre"))
    norm._register_state_dict_hook(seen("state_dict"))
    norm.register_load_state_dict_pre_hook(seen("load pre"))
    norm.register_load_state_dict_post_hook(seen("load post"))
    attributes = dict(vars(norm))
    reference = weakref.ref(norm)
    x = torch.randn(3, 4, requires_grad=True)
    expected = norm(x)
    called.clear()
    et.convert(norm)
    assert vars(norm) == attributes and all(vars(norm)[key] is value for key, value in attributes.items())
    assert type(reference()) is new and not norm.training and not norm.weight.requires_grad
    y = norm(x)
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    norm.load_state_dict(norm.state_dict())
    assert called == ["pre", "backward pre", "backward", "state_dict pre", "state_dict", "load pre", "load post"]


def test_calls_are_evenorm_s(monkeypatch):
    calls = []
    original = et.LayerNorm.forward
    monkeypatch.setattr(et.LayerNorm, "forward", lambda self, x: calls.append(1) or original(self, x))
    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4))
    et.convert(model)
    model(torch.randn(2, 4))
    assert len(calls) == 2


def test_optimizer_goes_on():
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(5, 6)
    model(x).square().sum().backward()
    optimizer.step()
    et.convert(model)
    before = model.final.weight.clone()
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.final.weight, before)
    assert set(optimizer.state) == set(model.parameters())


def test_twice_leaves_what_is_evenorm_s():
    model = nn.Sequential(nn.LayerNorm(C), look_alikes.ScaleShift(), et.RMSNorm(C))
    first, second = et.convert(model), et.convert(model)
    assert names(first) == ["0", "1"] and [one.reason for one in first.left] == ["already evenorm's"]
    assert second.replaced == () and [one.reason for one in second.left] == ["already evenorm's"] * 3


def test_checkpoints_both_ways():
    for make in (Model, look_alikes.ScaleShift, look_alikes.ConstantBeta):
        plain, converted = randomised(make(), 1), randomised(make(), 2)
        et.convert(converted)
        state = copy.deepcopy(converted.state_dict())
        converted.load_state_dict(plain.state_dict(), strict=True)
        for key, value in plain.state_dict().items():
            assert torch.equal(converted.state_dict()[key], value)
        plain.load_state_dict(state, strict=True)
        for key, value in state.items():
            assert torch.equal(plain.state_dict()[key], value)


def test_copies_and_pickles():
    model = randomised(nn.Sequential(nn.LayerNorm(C), look_alikes.ScaleShift(), look_alikes.NoWeightNorm()))
    et.convert(model)
    x = torch.randn(3, C)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [type(a) for a in other] == [type(a) for a in model]
        assert torch.equal(other(x), model(x))
        assert not {id(p) for p in other.parameters()} & {id(p) for p in model.parameters()}


class Softplus(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)

    def right_inverse(self, y):
        return torch.log(torch.expm1(y))


def test_parametrized_is_swapped_underneath():
    norm, twin = (parametrize.register_parametrization(nn.LayerNorm(4), "weight", Softplus()) for _ in range(2))
    original = norm.parametrizations.weight.original
    x = torch.randn(3, 4)
    expected = norm(x)
    report = et.convert(norm)
    assert len(report.replaced) == 1 and isinstance(norm, et.LayerNorm) and not isinstance(twin, et.LayerNorm)
    assert norm.parametrizations.weight.original is original
    torch.testing.assert_close(norm(x), expected)
    norm(x).sum().backward()
    assert original.grad is not None
    torch.testing.assert_close(copy.deepcopy(norm)(x), expected)
    assert et.convert(norm).left[0].reason == "already evenorm's"
    parametrize.remove_parametrizations(norm, "weight")
    assert type(norm) is et.LayerNorm
    torch.testing.assert_close(norm(x), expected)
    assert type(parametrize.remove_parametrizations(twin, "weight")) is nn.LayerNorm


def test_weight_norm_by_hook_goes_on():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        norm = torch.nn.utils.weight_norm(randomised(nn.LayerNorm(4)))
    et.convert(norm)
    assert type(norm) is et.LayerNorm and set(dict(norm.named_parameters())) == {"bias", "weight_g", "weight_v"}
    with torch.no_grad():
        norm.weight_g.mul_(2)
    x = torch.randn(3, 4)
    expected = nn.functional.layer_norm(x, (4,), 2 * norm.weight_v.detach(), norm.bias)
    torch.testing.assert_close(norm(x), expected)


def test_forward_replaced_on_the_object_is_left():
    norm, look_alike = nn.LayerNorm(4), look_alikes.ScaleShift()
    norm.forward = look_alike.forward = lambda x: x + 1
    report = et.convert(nn.Sequential(norm, look_alike))
    assert type(norm) is nn.LayerNorm and type(look_alike) is look_alikes.ScaleShift
    assert [one.reason for one in report.left] == [
        "its forward was replaced on the object itself",
        "its forward or __call__ is not that of its class",
    ]


def test_torchscript_is_left():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.LayerNorm(4)))
    report = et.convert(scripted)
    assert not report.replaced and [one.reason for one in report.left] == ["compiled by TorchScript"]


def test_compiled_before_is_compiled_anew():
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
    targets = [str(node.target) for node in graphs[1].graph.nodes]
    assert sum("evenorm" in target for target in targets) == 2, targets
    torch._dynamo.reset()
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(x), model(x))


def test_exported_and_traced():
    model = nn.Sequential(nn.LayerNorm(C), look_alikes.NarrowRMSNorm(), look_alikes.NoWeightNorm())
    et.convert(model)
    x = torch.randn(3, C)
    expected = model(x)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    assert sum("evenorm" in str(node.target) for node in exported.graph.nodes) == 3
    assert torch.equal(exported.module()(x), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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


def test_encoder_layer_fast_path_is_told(calls):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        expected = model.eval()(x)
    with pytest.warns(
        UserWarning, match=r"layers\.\* \(2\): in evaluation without gradients.*evenorm's are not called"
    ):
        report = et.convert(model)
    assert len(report.replaced) == 5 and len(report.warnings) == 1 and report.warnings[0] in repr(report)
    with torch.no_grad():
        fast = model(x)
    assert len(calls) == 1  # the encoder's own norm; the four in its layers were bypassed
    torch.testing.assert_close(fast, expected)
    calls.clear()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
        assert len(calls) == 5
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    calls.clear()
    model.train()(x).sum().backward()
    assert len(calls) == 5


def own_layer(**options):
    return nn.TransformerEncoderLayer(**{"d_model": 16, "nhead": 4, "dim_feedforward": 8, **options})


class OwnForward(nn.TransformerEncoderLayer):
    def forward(self, x):
        return self.norm2(self.norm1(x))


@pytest.mark.parametrize(
    "make",
    [
        own_layer,  # batch_first is False
        lambda: own_layer(batch_first=True, nhead=1),
        lambda: own_layer(batch_first=True, bias=False),
        lambda: own_layer(batch_first=True, activation=nn.functional.silu),
        lambda: OwnForward(16, 4, 8, batch_first=True),
        lambda: nn.TransformerDecoderLayer(16, 4, 8, batch_first=True),
    ],
)
def test_encoder_layer_without_fast_path_gives_no_warning(make, calls):
    layer = make().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = et.convert(layer)
    assert report.warnings == () and len(report.replaced) in (2, 3)
    if not isinstance(layer, nn.TransformerDecoderLayer):
        with torch.no_grad():
            layer(torch.randn(2, 5, 16))
        assert len(calls) == 2


# --- the report, and arguments


def test_report_reads_as_a_table():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.LayerNorm(C)) for _ in range(3)))
    model.append(look_alikes.Unbiased())
    model.append(look_alikes.ScaleShift())
    report = et.convert(model)
    lines = repr(report).splitlines()
    assert lines[:3] == [
        "evenorm.torch.convert: 4 replaced, 1 left",
        "  replaced  *.1 (3)  torch.nn.LayerNorm -> evenorm.torch.LayerNorm",
        "  replaced  4        ScaleShift -> evenorm.torch.layer_norm(x, scale, shift, eps=eps)",
    ]
    assert lines[3].startswith("  left      3  Unbiased: on random input it differs by ")
    assert (report.replaced[1].name, report.replaced[1].old) == ("1.1", "torch.nn.LayerNorm")
    assert (report.left[0].name, report.left[0].old) == ("3", "Unbiased")
    with pytest.raises(TypeError, match="converted in place"):
        report(torch.randn(2, C))


def test_wrong_arguments():
    cases = [
        ((nn.LayerNorm,), "model is the class LayerNorm, but must be a torch.nn.Module: an instance of it"),
        (([nn.LayerNorm(3)],), "model is a list, but must be a torch.nn.Module"),
        ((None,), "model is a NoneType, but must be a torch.nn.Module"),
    ]
    for arguments, message in cases:
        with pytest.raises(TypeError) as caught:
            et.convert(*arguments)
        assert str(caught.value) == message
    with pytest.raises(TypeError, match="look_alikes is a int, but must be a bool"):
        et.convert(nn.LayerNorm(3), look_alikes=1)

"""evenorm.torch under tracers: torch.fx, torch.jit.trace, torch.export with dynamic and data-dependent sizes."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx
from torch.export import Dim

import evenorm.torch as et

MODULES = {
    "LayerNorm": (et.LayerNorm(4), (2, 3, 4)),
    "LayerNorm, dim": (et.LayerNorm(3, dim=1), (2, 3, 4)),
    "RMSNorm": (et.RMSNorm(4), (2, 3, 4)),
    "RMSNorm, dim": (et.RMSNorm(3, dim=1), (2, 3, 4)),
    "GroupNorm": (et.GroupNorm(1, 3), (2, 3, 4)),
    "InstanceNorm1d, zero-centred": (et.InstanceNorm1d(3, affine=True, zero_centered=True), (2, 3, 4)),
    "InstanceNorm2d": (et.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
    "InstanceNorm1d, running": (et.InstanceNorm1d(3, track_running_stats=True), (2, 3, 4)),
    "LayerNormLSTM": (et.LayerNormLSTM(4, 5), (3, 2, 4)),
    "LayerNormGRUCell": (et.LayerNormGRUCell(4, 5), (2, 4)),
}
FUNCTIONS = {
    "layer_norm": lambda x: et.layer_norm(torch.ones(3, 4, 4), (4,), x[0, 0], dim=2, zero_centered=True),
    "rms_norm": lambda x: et.rms_norm(x, (4,), bias=torch.ones(4)),
    "add_layer_norm": lambda x: et.add_layer_norm(x, x + 1, (4,))[0],
    "add_rms_norm": lambda x: et.add_rms_norm(x, x + 1, (4,), torch.ones(4), residual_scale=2.0, zero_centered=True)[0],
    "group_norm": lambda x: et.group_norm(x, 2, torch.ones(4), zero_centered=True),
    "ada_layer_norm": lambda x: et.ada_layer_norm(torch.ones(3, 4, 4), x[:, :1], x[:, :1]),
}


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def values(result):
    return torch.utils._pytree.tree_leaves(result)


@pytest.mark.parametrize("name", MODULES)
def test_fx_records_modules(name):
    module, shape = copy.deepcopy(MODULES[name])
    model, x, calls = nn.Sequential(module).eval(), torch.randn(shape), []
    module.register_forward_hook(lambda *_: calls.append("hook"))
    traced = torch.fx.symbolic_trace(model)
    assert [(node.op, node.target) for node in traced.graph.nodes][1:-1] == [("call_module", "0")] and not calls
    assert all(map(torch.equal, values(traced(x)), values(model(x)))) and calls == ["hook"] * 2
    setattr(traced, "0", nn.Identity())
    assert torch.equal(traced(x), x)


def test_fx_records_look_alikes_and_subclasses():
    class Twice(et.LayerNorm):
        def forward(self, input):
            return super().forward(input) * 2

    class RootNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight

    model, x = nn.Sequential(Twice(4), RootNorm()), torch.randn(3, 4)
    assert et.convert(model).replaced
    traced = torch.fx.symbolic_trace(model)
    assert [node.op for node in traced.graph.nodes][1:-1] == ["call_module"] * 2
    assert torch.equal(traced(x), model(x))
    assert torch.equal(
        torch.fx.symbolic_trace(model[0])(x), model[0](x)
    )  # the model itself: its functions are recorded


def test_fx_traces_modules_as_the_tracer_decides():
    class Inside(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return False

    graph = Inside().trace(nn.Sequential(et.LayerNorm(4)))
    assert et.layer_norm in [node.target for node in graph.nodes]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_fx_records_functions(name):
    model, x = Calls(FUNCTIONS[name]), torch.randn(3, 4, 4)
    traced = torch.fx.symbolic_trace(model)
    assert getattr(et, name) in [node.target for node in traced.graph.nodes]
    assert torch.equal(traced(x), model(x))


@pytest.mark.parametrize("name", ["GroupNorm", "InstanceNorm2d", "InstanceNorm1d, running"])
def test_static_quantization_by_fx_sees_pytorchs_norms(name):
    module, shape = MODULES[name]
    theirs = getattr(nn, type(module).__name__)(*((1, 3) if name == "GroupNorm" else (3,)))
    results = []
    for norm in (module, theirs):
        model, x = (
            nn.Sequential(nn.Conv1d(3, 3, 1) if len(shape) == 3 else nn.Conv2d(3, 3, 1), norm).eval(),
            torch.randn(shape),
        )
        prepared = quantize_fx.prepare_fx(model, get_default_qconfig_mapping("x86"), (x,))
        prepared(x)
        results.append(str(quantize_fx.convert_fx(prepared).code).count("quantize_per_tensor"))
    assert results[0] == results[1]


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("name, arguments", [("GroupNorm", (2, 8)), ("InstanceNorm2d", (8,))])
def test_jit_trace_keeps_evenorm(name, arguments, affine):
    warned = []
    for library in (et, nn):
        module = getattr(library, name)(*arguments, affine=affine)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            traced = torch.jit.trace(module, torch.randn(2, 8, 5, 5))
        warned.append(sum(issubclass(one.category, torch.jit.TracerWarning) for one in caught))
        if library is et:
            assert "evenorm::group_norm" in str(traced.inlined_graph)
            other_sizes = torch.randn(3, 8, 4, 7)
            assert torch.equal(traced(other_sizes), module(other_sizes))
    assert warned[0] <= warned[1]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "module", [et.InstanceNorm2d(8, affine=True), et.GroupNorm(2, 8), et.LayerNorm(8, dim=1)], ids=str
)
def test_export_keeps_dynamic_sizes(module, strict):
    sizes = ({0: Dim("b"), 2: Dim("h"), 3: Dim("w")},)
    program = torch.export.export(module, (torch.randn(2, 8, 6, 7),), dynamic_shapes=sizes, strict=strict)
    x = torch.randn(3, 8, 5, 4)
    assert torch.equal(program.module()(x), module(x))


DEPEND_ON_DATA = {
    "layer_norm": lambda s: et.layer_norm(s, (6,), torch.ones(6)),
    "normalized_shape": lambda s: et.layer_norm(s.mT, s.mT.shape[-1:]),
    "add_rms_norm": lambda s: et.add_rms_norm(s, torch.ones(6), (6,))[0],
    "add_layer_norm": lambda s: et.add_layer_norm(s, torch.ones(1, 6), (6,))[0],
    "ada_layer_norm": lambda s: et.ada_layer_norm(s, s[:, :1], s[:, :1]),
    "group_norm": lambda s: et.group_norm(s, 2, torch.ones(6)),
    "instance_norm": lambda s: et.InstanceNorm1d(6)(torch.stack((s, s + s * s), -1)),
}


@pytest.mark.parametrize("name", DEPEND_ON_DATA)
def test_sizes_that_depend_on_data(name):
    def chosen(x):
        return DEPEND_ON_DATA[name](x[x[:, 0] > 0])

    x = torch.linspace(-1, 1, 30).reshape(5, 6)
    assert torch.equal(torch.export.export(Calls(chosen), (x,), strict=False).module()(x), chosen(x))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(torch.compile(chosen, fullgraph=True, backend="aot_eager")(x), chosen(x))


@pytest.mark.parametrize(
    "module",
    [
        et.RMSNorm(4),
        et.RMSNorm(4, elementwise_affine=False),
        et.LayerNorm(4, 1e-6, bias=False),
        et.GroupNorm(2, 4, affine=False),
    ],
    ids=str,
)
def test_draft_export(module):
    x = torch.randn(2, 4, 4)
    assert torch.equal(torch.export.draft_export(module, (x,)).module()(x), module(x))


@pytest.mark.parametrize("module", [et.LayerNorm, et.RMSNorm, et.GroupNorm, et.InstanceNorm2d, et.LayerNormLSTM])
def test_skip_init(module):
    further = {et.GroupNorm: [8], et.LayerNormLSTM: [8]}
    made = nn.utils.skip_init(module, 8, *further.get(module, []))
    assert made.state_dict().keys() == module(8, *further.get(module, [])).state_dict().keys()

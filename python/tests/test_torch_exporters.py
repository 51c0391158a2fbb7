"""PyTorch's exporters, quantizers and TorchScript handle evenorm's norms correctly or fail with a clear error."""

import os
import subprocess
import sys
from types import SimpleNamespace

import onnx
import onnx.reference
import pytest
import torch
import torch.ao.quantization as quantization
import torch_look_alikes as look_alikes
from torch import nn
from torch.ao.quantization import quantize_fx

import evenorm.torch as et

C = look_alikes.C
pytestmark = pytest.mark.filterwarnings("ignore")  # torch.ao is deprecated


def model_of(norm):
    torch.manual_seed(0)
    ends = (nn.Identity(), nn.Identity()) if hasattr(norm, "affine") else (nn.Linear(16, C), nn.Linear(C, 16))
    return look_alikes.randomised(nn.Sequential(ends[0], norm, ends[1])).eval()


def input_of(norm, rows=50):
    """Rows for a model_of(norm); images in channels-last order for group and instance norm."""
    if not hasattr(norm, "affine"):
        return torch.randn(rows, 16)
    axes = {nn.InstanceNorm1d: 1, nn.InstanceNorm3d: 3}.get(type(norm), 2)
    return torch.randn(2, *[5] * axes, C).movedim(-1, 1)


def converted(norm):
    model = model_of(norm())
    et.convert(model)
    return model


NORMS = {
    "layer": lambda: nn.LayerNorm(C),
    "layer without weight": lambda: nn.LayerNorm(C, elementwise_affine=False),
    "layer without bias": lambda: nn.LayerNorm(C, bias=False),
    "rms": lambda: nn.RMSNorm(C),
    "formula": look_alikes.ScaleShift,
    "zero-centred": look_alikes.ZeroCentred,
    "zero-centred layer": lambda: et.LayerNorm(C, zero_centered=True),
}
OF_IMAGES = {"group": lambda: nn.GroupNorm(4, C), "instance": lambda: nn.InstanceNorm2d(C, affine=True)}
EACH = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)


# --- ONNX


def exported(model, x, **options):
    program = torch.onnx.export(model, (x,), dynamo=True, verbose=False, **options)
    onnx.checker.check_model(program.model_proto)
    return program.model_proto


def operators(proto):
    return [node.op_type for node in proto.graph.node]


def assert_computes(proto, model, x, tolerance=1e-4):
    (y,) = onnx.reference.ReferenceEvaluator(proto).run(None, {proto.graph.input[0].name: x.numpy()})
    torch.testing.assert_close(torch.tensor(y), model(x), rtol=tolerance, atol=tolerance)


@EACH
@pytest.mark.parametrize("opset", [18, 23])
def test_onnx_uses_its_own_operator(norm, opset):
    model = converted(norm)
    x = torch.randn(5, 16)
    proto = exported(model, x, opset_version=opset)
    found = operators(proto)
    if isinstance(model[1], nn.LayerNorm | look_alikes.ScaleShift):
        assert found.count("LayerNormalization") == 1 and len(found) <= 5, found
    else:
        assert opset < 23 or found.count("RMSNormalization") == 1, found
    assert not any(node.domain for node in proto.graph.node)
    assert_computes(proto, model, x)


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("norm", OF_IMAGES.values(), ids=OF_IMAGES)
def test_onnx_of_group_and_instance_norm_is_that_of_torch_nn(norm, opset):
    model, images = model_of(norm()), input_of(norm())
    shapes = ({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC},)
    expected = operators(exported(model, images, opset_version=opset, dynamic_shapes=shapes))
    assert opset == 18 or expected == [type(model[1]).__name__.removesuffix("2d") + "alization"]
    et.convert(model)
    program = torch.export.export(model, (images,), dynamic_shapes=shapes)
    for given, options in ((model, {"dynamic_shapes": shapes}), (program, {})):
        proto = exported(given, images, opset_version=opset, **options)
        assert operators(proto) in (expected, [*expected, "Identity"])
        assert_computes(proto, model, images)
    assert exported(model.bfloat16(), images.bfloat16(), opset_version=opset)
    doubles = exported(et.GroupNorm(6, 6).double(), torch.randn(2, 6, 5, 4).double(), opset_version=opset)
    assert opset == 18 or "InstanceNormalization" not in operators(doubles)  # which ONNX Runtime lacks for float64


@pytest.mark.parametrize("options", [{"opset_version": 20, "optimize": False}, {"opset_version": 23}])
def test_onnx_keeps_a_small_eps(options):
    model, x = et.RMSNorm(C, eps=1e-12), torch.zeros(2, C)
    x[1] = 1e-6
    assert_computes(exported(model, x, **options), model, x)


class Residual(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.norm = kind, nn.LayerNorm(C) if kind == "layer" else nn.RMSNorm(C)

    def forward(self, x):
        if self.kind == "layer":
            y, s = et.add_layer_norm(x, 2 * x, (C,), self.norm.weight, self.norm.bias, 1e-5, 0.5)
        else:
            y, s = et.add_rms_norm(x, 2 * x, (C,), self.norm.weight, 1e-5, 0.5)
        return y + s


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_onnx_of_the_fused_residual(kind):
    model, x = look_alikes.randomised(Residual(kind)), torch.randn(5, C)
    proto = exported(model, x, opset_version=23)
    assert ("LayerNormalization" if kind == "layer" else "RMSNormalization") in operators(proto)
    assert_computes(proto, model, x)


def test_onnx_of_mixed_types():
    """Half input with float32 weights: ONNX's operators have a single type."""
    model = nn.Sequential(et.LayerNorm(C), et.RMSNorm(C))
    x = torch.randn(5, C).half()
    proto = exported(model, x, opset_version=23)
    assert model(x).dtype == torch.float16
    assert proto.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert_computes(proto, model, x, 1e-2)


def test_onnx_of_dynamic_shapes_and_of_an_exported_program():
    model, x = nn.Sequential(et.LayerNorm(C), et.RMSNorm(C)), torch.randn(5, 3, C)
    shapes = ({0: torch.export.Dim("batch")},)
    for given, options in (
        (model, {"dynamic_shapes": shapes}),
        (torch.export.export(model, (x,), dynamic_shapes=shapes), {}),
    ):
        proto = exported(given, x, opset_version=23, **options)
        assert operators(proto) == ["LayerNormalization", "RMSNormalization"]
        assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param


@pytest.mark.parametrize("norm", [et.LayerNorm, et.RMSNorm])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_strides_match_the_operators(norm, dynamic):
    torch._dynamo.reset()
    module = norm(C)
    compiled = torch.compile(lambda x: module(x) * 2, dynamic=dynamic, fullgraph=True)
    x = torch.randn(5, C, 3).mT
    assert torch.equal(compiled(x), module(x) * 2)
    assert compiled(x).stride() == module(x).stride()


COMPILED_IN_CI = """
import torch
import evenorm.torch as et
x = torch.randn(5, 96, 3).mT
norms = [et.LayerNorm(96), et.RMSNorm(96), lambda x: et.add_layer_norm(x, x, (96,)), lambda x: et.add_rms_norm(x, x, (96,))]
for norm in norms:
    y, expected = torch.compile(norm, fullgraph=True)(x), norm(x)
    assert all(map(torch.equal, *((y, expected) if isinstance(y, tuple) else ([y], [expected]))))
"""


def test_compiled_where_the_environment_says_ci():
    """CI enables PyTorch's own checks of operators that have a decomposition, which the exporter needs."""
    environment = {**os.environ, "CI": "true"}
    subprocess.run([sys.executable, "-c", COMPILED_IN_CI], env=environment, timeout=600, check=True)


# --- TorchScript


SCRIPTED = [*(lambda norm=norm: converted(norm)[1] for norm in NORMS.values())] + [
    lambda cls=cls: cls(4, 3) for cls in (et.LayerNormLSTM, et.LayerNormGRU, et.LayerNormLSTMCell, et.LayerNormGRUCell)
]


@pytest.mark.parametrize("make", SCRIPTED)
def test_the_torchscript_error_states_what_to_do(make):
    module = make()
    name = type(module).__name__
    message = rf"torch.jit.script cannot compile evenorm's modules \({name}\): use torch.compile, torch.export or torch"
    for given in (module, nn.ModuleDict({"a": nn.Sequential(module)})):
        with pytest.raises(TypeError, match=message):
            torch.jit.script(given)


# --- torch.export


@pytest.mark.parametrize("norm", [*NORMS.values(), *OF_IMAGES.values()], ids=[*NORMS, *OF_IMAGES])
def test_decompositions_reach_core_aten(norm):
    """Only if the caller asks for them: otherwise an exported program keeps evenorm's operators and bits."""
    model, x = converted(norm), input_of(norm(), 5)
    program = torch.export.export(model, (x,))

    def namespaces(program):
        return {node.target.namespace for node in program.graph.nodes if hasattr(node.target, "namespace")}

    assert "evenorm" in namespaces(program.run_decompositions())
    names = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm")
    ours = torch._decomp.get_decompositions([getattr(torch.ops.evenorm, name) for name in names])
    core = program.run_decompositions({**torch.export.default_decompositions(), **ours})
    assert namespaces(core) == {"aten"}
    targets = {node.target for node in core.graph.nodes if hasattr(node.target, "tags")}
    others = {target for target in targets if torch.Tag.core not in target.tags}
    assert others <= {torch.ops.aten._assert_tensor_metadata.default}
    torch.testing.assert_close(core.module()(x), model(x))


# --- static quantization


def is_close(a, b):
    """Allows a few steps of 8 bits over the whole range, because observers see values with different last bits."""
    return (a - b).abs().max() < 0.03 * b.abs().max()


def quantized_by_fx(model, x, between=lambda model: None):
    prepared = quantize_fx.prepare_fx(model, quantization.get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    between(prepared)
    return quantize_fx.convert_fx(prepared)


def quantized_eagerly(model, x, between=lambda model: None, training=False):
    model.qconfig = (quantization.get_default_qat_qconfig if training else quantization.get_default_qconfig)("x86")
    prepare = quantization.prepare_qat if training else quantization.prepare
    prepared = prepare(quantization.QuantWrapper(model).train(training))
    prepared(x)
    between(prepared)
    return quantization.convert(prepared.eval())


LAYERS = pytest.mark.parametrize("norm", list(NORMS.values())[:3], ids=list(NORMS)[:3])


@EACH
def test_quantized_by_fx(norm):
    x, plain = torch.randn(50, 16), model_of(norm())
    ours, theirs, exact = quantized_by_fx(converted(norm), x)(x), quantized_by_fx(model_of(norm()), x)(x), plain(x)
    assert is_close(ours, theirs) and (ours - exact).abs().max() < 1.5 * (theirs - exact).abs().max()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "norm", [*list(NORMS.values())[:3], *OF_IMAGES.values(), lambda: nn.InstanceNorm1d(C), lambda: nn.InstanceNorm3d(C)]
)
def test_quantized_eagerly(norm, training):
    x = input_of(norm())
    ours, theirs = (quantized_eagerly(model, x, training=training) for model in (converted(norm), model_of(norm())))
    assert type(ours.module[1]) is type(theirs.module[1])
    assert type(ours.module[1]).__module__ == "torch.ao.nn.quantized.modules.normalization"
    assert is_close(ours(x), theirs(x))
    with pytest.raises(TypeError, match="has no zero-centred norms: set the norm's qconfig to None"):
        quantized_eagerly(et.LayerNorm(C, zero_centered=True), x, training=training)


@LAYERS
def test_converted_after_it_was_prepared(norm):
    x, reports = torch.randn(50, 16), []
    for quantized in (quantized_by_fx, quantized_eagerly):
        y = quantized(model_of(norm()), x, between=lambda model: reports.append(et.convert(model)))(x)
        assert torch.equal(y, quantized(model_of(norm()), x)(x))
    why = "prepared for static quantization, which will put PyTorch's quantized norm in its place"
    assert [one.reason for one in reports[0].left] == [why] and not reports[0].replaced


def test_converted_after_it_was_quantized():
    x = torch.randn(50, 16)
    for quantized in (quantized_by_fx, quantized_eagerly):
        model = quantized(model_of(nn.LayerNorm(C)), x)
        expected = model(x)
        report = et.convert(model)
        assert [one.reason for one in report.left] == ["PyTorch's quantized norm"], report
        assert torch.equal(model(x), expected)


# --- counters of operations


def test_counters_that_are_loaded_count_evenorms_norms_as_pytorchs(monkeypatch):
    """thop and others look modules up by their exact class. Counters loaded later are found by convert()."""
    table = {nn.LayerNorm: "a rule", nn.GroupNorm: "another", nn.Linear: "a third"}
    monkeypatch.setitem(sys.modules, "thop.profile", SimpleNamespace(register_hooks=table))
    et.convert(nn.Identity())
    assert table[et.LayerNorm] == "a rule" and table[et.GroupNorm] == "another" and len(table) == 5

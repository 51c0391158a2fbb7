"""What PyTorch's exporters, quantizers and TorchScript make of evenorm's norms: the right thing, or a clear error."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import copy
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import torch.ao.quantization as quantization
import torch_look_alikes as look_alikes
from torch import nn
from torch.ao.quantization import quantize_fx

import evenorm.torch as et

C = look_alikes.C
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch.ao and the older exporter, which are on their way out


def model_of(norm):
    torch.manual_seed(0)
    return look_alikes.randomised(nn.Sequential(nn.Linear(16, C), norm, nn.Linear(C, 16))).eval()


NORMS = {
    "layer": lambda: nn.LayerNorm(C),
    "layer without weight": lambda: nn.LayerNorm(C, elementwise_affine=False),
    "layer without bias": lambda: nn.LayerNorm(C, bias=False),
    "rms": lambda: nn.RMSNorm(C),
    "formula": look_alikes.ScaleShift,
    "zero-centred": look_alikes.ZeroCentred,
}
EACH = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)


# --- ONNX


def exported(model, x, **options):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    program = torch.onnx.export(model, (x,), dynamo=True, verbose=False, **options)
    onnx.checker.check_model(program.model_proto)
    return program


def operators(program):
    return [node.op_type for node in program.model_proto.graph.node]


@EACH
@pytest.mark.parametrize("opset", [18, 23])
def test_onnx_gives_the_norm_s_own_operator(norm, opset):
    model = model_of(norm())
    et.convert(model)
    x = torch.randn(5, 16)
    program = exported(model, x, opset_version=opset)
    found = operators(program)
    if isinstance(model[1], nn.LayerNorm | look_alikes.ScaleShift):
        assert found.count("LayerNormalization") == 1 and len(found) <= 5, found
    else:
        assert opset < 23 or found.count("RMSNormalization") == 1, found
    assert not any(node.domain for node in program.model_proto.graph.node)
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(program.model_proto)
    (y,) = reference.run(None, {program.model_proto.graph.input[0].name: x.numpy()})
    torch.testing.assert_close(torch.tensor(y), model(x), rtol=1e-4, atol=1e-4)


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
    program = exported(model, x, opset_version=23)
    assert ("LayerNormalization" if kind == "layer" else "RMSNormalization") in operators(program)
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(program.model_proto)
    (y,) = reference.run(None, {program.model_proto.graph.input[0].name: x.numpy()})
    torch.testing.assert_close(torch.tensor(y), model(x), rtol=1e-4, atol=1e-4)


def test_onnx_of_mixed_types():
    """Half input beside float32 weights: ONNX's operators have one type."""
    model = nn.Sequential(et.LayerNorm(C), et.RMSNorm(C))
    x = torch.randn(5, C).half()
    program = exported(model, x, opset_version=23)
    assert model(x).dtype == torch.float16
    assert program.model_proto.graph.output[0].type.tensor_type.elem_type == 10  # FLOAT16
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(program.model_proto)
    (y,) = reference.run(None, {program.model_proto.graph.input[0].name: x.numpy()})
    torch.testing.assert_close(torch.tensor(y), model(x), rtol=1e-2, atol=1e-2)


def test_onnx_of_dynamic_shapes_and_of_an_exported_program():
    model = nn.Sequential(nn.LayerNorm(C), nn.RMSNorm(C))
    et.convert(model)
    x = torch.randn(5, 3, C)
    shapes = ({0: torch.export.Dim("batch")},)
    for given, options in (
        (model, {"dynamic_shapes": shapes}),
        (torch.export.export(model, (x,), dynamic_shapes=shapes), {}),
    ):
        program = exported(given, x, opset_version=23, **options)
        assert operators(program) == ["LayerNormalization", "RMSNormalization"]
        assert program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param


def test_export_and_compile_keep_evenorm_s_operators():
    """What ONNX is given is for ONNX alone."""
    torch._dynamo.reset()
    model = nn.Sequential(nn.LayerNorm(C), nn.RMSNorm(C))
    et.convert(model)
    x = torch.randn(5, 3, C)
    exported_program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for program in (exported_program, exported_program.run_decompositions()):
        assert sum("evenorm" in str(node.target) for node in program.graph.nodes) == 2


@pytest.mark.parametrize("norm", [et.LayerNorm, et.RMSNorm])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_strides_are_those_of_the_operators(norm, dynamic):
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
    """PyTorch's own checks then run: of operators with a decomposition, too, which the exporter needs."""
    environment = {**os.environ, "CI": "true"}
    subprocess.run([sys.executable, "-c", COMPILED_IN_CI], env=environment, timeout=600, check=True)


@EACH
def test_the_older_onnx_exporter(norm, tmp_path):
    """Layer norms are exported; RMS norms, which it does not know, are told what to do."""
    onnx = pytest.importorskip("onnx")
    model = model_of(norm())
    et.convert(model)
    x, path = torch.randn(5, 16), tmp_path / "model.onnx"
    if isinstance(model[1], nn.RMSNorm | look_alikes.ZeroCentred):
        with pytest.raises(Exception, match=r"evenorm::rms_norm.*dynamo=True"):
            torch.onnx.export(model, (x,), path, dynamo=False)
        return
    torch.onnx.export(model, (x,), path, dynamo=False)
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    assert "LayerNormalization" in [node.op_type for node in proto.graph.node]
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(proto)
    (y,) = reference.run(None, {proto.graph.input[0].name: x.numpy()})
    torch.testing.assert_close(torch.tensor(y), model(x), rtol=1e-4, atol=1e-4)


# --- TorchScript


@EACH
def test_torchscript_says_what_to_do(norm):
    model = model_of(norm())
    et.convert(model)
    name = type(model[1]).__name__.removeprefix("Evenorm")
    for given in (model, model[1], nn.ModuleDict({"a": model})):
        with pytest.raises(
            TypeError,
            match=rf"torch.jit.script cannot compile evenorm's modules \({name}\): use torch.compile, torch.export or "
            r"torch.jit.trace, or script the model with PyTorch's own modules",
        ):
            torch.jit.script(given)
    x = torch.randn(5, 16)
    assert torch.equal(torch.jit.trace(model, (x,))(x), model(x))


@pytest.mark.parametrize("name", ["LayerNormLSTM", "LayerNormGRU", "LayerNormLSTMCell", "LayerNormGRUCell"])
def test_torchscript_says_what_to_do_with_recurrent_modules(name):
    module = getattr(et, name)(4, 3)
    for given in (module, nn.Sequential(module)):
        with pytest.raises(
            TypeError, match=rf"torch.jit.script cannot compile evenorm's modules \({name}\): use torch."
        ):
            torch.jit.script(given)


# --- torch.export


@EACH
def test_decompositions_reach_core_aten(norm):
    """Only where they are asked for: an exported program keeps evenorm's operators and bits otherwise."""
    model, x = model_of(norm()), torch.randn(5, 16)
    et.convert(model)
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
    """A few steps of 8 bits over the whole range: observers see values that differ in their last bits."""
    return (a - b).abs().max() < 0.03 * b.abs().max()


def quantized_fx(model, x):
    prepared = quantize_fx.prepare_fx(model, quantization.get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    return prepared, quantize_fx.convert_fx(prepared)


def quantized_eagerly(model, x, between=lambda model: None):
    model.qconfig = quantization.get_default_qconfig("x86")
    prepared = quantization.prepare(quantization.QuantWrapper(model))
    prepared(x)
    between(prepared)
    return quantization.convert(prepared)


@EACH
def test_quantized_by_fx(norm):
    plain = model_of(norm())
    model = copy.deepcopy(plain)
    et.convert(model)
    x = torch.randn(50, 16)
    ours, theirs = (quantized_fx(m, x)[1](x) for m in (model, plain))
    exact = plain(x)
    assert is_close(ours, theirs) and (ours - exact).abs().max() < 1.5 * (theirs - exact).abs().max()


LAYERS = pytest.mark.parametrize("norm", list(NORMS.values())[:3], ids=list(NORMS)[:3])


@LAYERS
def test_quantized_eagerly(norm):
    plain = model_of(norm())
    model = copy.deepcopy(plain)
    et.convert(model)
    x = torch.randn(50, 16)
    ours, theirs = (quantized_eagerly(m, x) for m in (model, plain))
    assert type(ours.module[1]) is type(theirs.module[1]) is torch.ao.nn.quantized.LayerNorm
    assert is_close(ours(x), theirs(x))


@LAYERS
def test_converted_after_it_was_prepared(norm):
    x = torch.randn(50, 16)
    assert torch.equal(
        quantized_eagerly(model_of(norm()), x, between=et.convert)(x), quantized_eagerly(model_of(norm()), x)(x)
    )
    expected = quantized_fx(model_of(norm()), x)[1](x)
    prepared = quantize_fx.prepare_fx(model_of(norm()), quantization.get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    report = et.convert(prepared)
    assert [one.reason for one in report.left] == [
        "prepared for static quantization, which will put PyTorch's quantized norm in its place"
    ], report
    assert not report.replaced and torch.equal(quantize_fx.convert_fx(prepared)(x), expected)


def test_converted_after_it_was_quantized():
    x = torch.randn(50, 16)
    for quantized in (quantized_fx(model_of(nn.LayerNorm(C)), x)[1], quantized_eagerly(model_of(nn.LayerNorm(C)), x)):
        expected = quantized(x)
        report = et.convert(quantized)
        assert [one.reason for one in report.left] == ["PyTorch's quantized norm"], report
        assert torch.equal(quantized(x), expected)

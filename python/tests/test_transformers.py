"""evenorm.transformers: RMS norms of transformers' models, through its interface for kernels."""

import copy
import importlib.metadata

import pytest
import torch

import evenorm.torch

transformers = pytest.importorskip("transformers", exc_type=ImportError)
evenorm_transformers = pytest.importorskip("evenorm.transformers", exc_type=ImportError)

SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
             vocab_size=50, head_dim=16)  # fmt: skip
IDS = torch.arange(12)[None]
with_kernels = pytest.mark.skipif(
    not transformers.utils.import_utils.is_kernels_available(), reason="transformers accepts no installed kernels"
)


def model_of(name, dtype):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES)
    model = getattr(transformers, f"{name}ForCausalLM")(config).to(dtype)
    with torch.no_grad():
        for norm in norms_of(model):
            norm.weight += 0.1 * torch.randn_like(norm.weight)
    return model


def norms_of(model):
    return [module for module in model.modules() if "RMSNorm" in type(module).__name__]


def is_replaced(norm):
    return getattr(norm.forward, "__module__", "") == "evenorm.transformers"


@with_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_every_norm_is_replaced_and_trains(name, dtype):
    model = model_of(name, dtype)
    converted = copy.deepcopy(model)
    evenorm.torch.convert(converted)
    evenorm_transformers.register()
    for training in (False, True):
        model.train(training).set_use_kernels(True)
        assert norms_of(model) and all(map(is_replaced, norms_of(model)))
    losses = [m(IDS, labels=IDS).loss for m in (model, converted.train())]
    assert torch.equal(*losses)
    for loss in losses:
        loss.backward()
    for (name, own), (_, other) in zip(model.named_parameters(), converted.named_parameters(), strict=True):
        assert torch.equal(own.grad, other.grad), name


@with_kernels
def test_zero_centred_norms():
    kernels = pytest.importorskip("kernels")
    qwen = pytest.importorskip("transformers.models.qwen3_5.modeling_qwen3_5")
    norm = qwen.Qwen3_5RMSNorm(16)
    torch.nn.init.normal_(norm.weight)
    converted, x = copy.deepcopy(norm), torch.randn(3, 16)
    evenorm.torch.convert(torch.nn.Sequential(converted))
    evenorm_transformers.register()
    kernels.kernelize(norm, mode=kernels.Mode.INFERENCE, device="cpu", use_fallback=False)
    assert is_replaced(norm) and torch.equal(norm(x), converted(x))


def test_without_a_fitting_kernels_the_error_names_it(monkeypatch):
    monkeypatch.setattr(evenorm_transformers.import_utils, "is_kernels_available", lambda: False)
    with pytest.raises(ImportError, match=f"transformers {transformers.__version__} needs kernels from 0.* to below 0"):
        evenorm_transformers.register()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.2")
    with pytest.raises(ImportError, match="but this is kernels 0.1.2"):
        evenorm_transformers.register()

"""convert() on the norms and models of Hugging Face's transformers: swapped, or left, for what they compute."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import copy
import importlib

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import evenorm.torch as et

C = 64
RMS = "rms_norm(x, weight, eps=variance_epsilon)"
LAYER = "layer_norm(x, weight, bias, eps=eps)"

SWAPPED = {
    "llama.LlamaRMSNorm": RMS,
    "mistral.MistralRMSNorm": RMS,
    "qwen2.Qwen2RMSNorm": RMS,
    "qwen3.Qwen3RMSNorm": RMS,
    "phi3.Phi3RMSNorm": RMS,
    "olmo2.Olmo2RMSNorm": RMS,
    "t5.T5LayerNorm": RMS,
    "gemma.GemmaRMSNorm": "rms_norm(x, 1 + weight, eps=eps)",
    "gemma2.Gemma2RMSNorm": "rms_norm(x, 1 + weight, eps=eps)",
    "gemma3.Gemma3RMSNorm": "rms_norm(x, 1 + weight, eps=eps)",
    "gemma3n.Gemma3nRMSNorm": "rms_norm(x, weight, eps=eps)",
    "llama4.Llama4TextL2Norm": "rms_norm(x, eps=eps)",
    "deberta.DebertaLayerNorm": "layer_norm(x, weight, bias, eps=variance_epsilon)",
    "nemotron.NemotronLayerNorm1P": "layer_norm(x, 1 + weight, bias, eps=eps)",
    "cohere.CohereLayerNorm": "layer_norm(x, weight, eps=variance_epsilon)",
    "convnext.ConvNextLayerNorm": LAYER,
    "olmo.OlmoLayerNorm": "layer_norm(x, eps=1e-05)",
}
CHANNELS_FIRST = ("vitdet.VitDetLayerNorm", "eomt.EomtLayerNorm2d", "squeezebert.SqueezeBertLayerNorm")
LEFT = {
    "qwen3_next.Qwen3NextRMSNormGated": "its forward takes (hidden_states, gate), not one tensor alone",
    "poolformer.PoolFormerGroupNorm": "of 2-D x, but not of 4-D x",  # over channels, height and width together
    "mobilebert.NoNorm": "on random input it differs",
    "detr.DetrFrozenBatchNorm2d": "its tensors (weight, bias, running_mean, running_var) are not weight and bias",
}


def made(path):
    model, name = path.split(".")
    module = getattr(importlib.import_module(f"transformers.models.{model}.modeling_{model}"), name)
    norm = module() if name == "Llama4TextL2Norm" else module(C)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + 0.5)
    return norm


@pytest.mark.parametrize(("path", "formula"), SWAPPED.items())
def test_swapped(path, formula):
    torch.manual_seed(1)
    norm = made(path)
    plain = copy.deepcopy(norm)
    report = et.convert(norm)
    assert [one.new for one in report.replaced] == [f"evenorm.torch.{formula}"], report
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        x = torch.randn(2, 9, C).to(dtype)
        ours, theirs = norm.to(dtype)(x), plain.to(dtype)(x)
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    # Half input with float32 weights: of the type that the module itself gives.
    x = torch.randn(2, 9, C).bfloat16()
    assert norm.float()(x).dtype == plain.float()(x).dtype


@pytest.mark.parametrize("path", CHANNELS_FIRST)
def test_channels_first(path):
    torch.manual_seed(1)
    norm = made(path)
    plain = copy.deepcopy(norm)
    report = et.convert(norm)
    assert [one.new for one in report.replaced] == ["evenorm.torch.layer_norm(x, weight, bias, eps=eps, axes=(1,))"]
    for shape in ((2, C, 5), (2, C, 5, 7), (2, C, 5, C)):
        x = torch.randn(shape)
        try:
            expected = plain(x)
        except RuntimeError:
            continue
        torch.testing.assert_close(norm(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("path", "reason"), LEFT.items())
def test_left(path, reason):
    report = et.convert(made(path))
    assert report.replaced == () and len(report.left) == 1 and reason in report.left[0].reason, report


def config(kind, **options):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return kind(**sizes, num_key_value_heads=2, vocab_size=100, max_position_embeddings=64, **options)


@pytest.mark.parametrize("kind", ["Llama", "Gemma"])
def test_language_model(kind):
    torch.manual_seed(2)
    options = {"head_dim": 8} if kind == "Gemma" else {}
    cls = getattr(transformers, f"{kind}ForCausalLM")
    plain = cls(config(getattr(transformers, f"{kind}Config"), **options)).eval()
    model = copy.deepcopy(plain)
    report = et.convert(model)
    assert len(report.replaced) == 5 and report.left == ()
    assert "model.layers.*.input_layernorm (2)" in repr(report)
    assert type(model.model.norm).__name__ == f"Evenorm{kind}RMSNorm"
    tokens = torch.randint(0, 100, (2, 12))
    ours, theirs = (m(tokens, labels=tokens) for m in (model, plain))
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-5)
    for m in (ours, theirs):
        m.loss.backward()
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5, msg=name)
    assert list(model.state_dict()) == list(plain.state_dict())
    generated = [m.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0) for m in (model, plain)]
    assert torch.equal(*generated)
    again = copy.deepcopy(model)(tokens).logits
    assert torch.equal(again, ours.logits)
    with torch.no_grad():
        torch._dynamo.reset()
        compiled = torch.compile(model.model, backend="eager")(tokens).last_hidden_state
        assert torch.equal(compiled, model.model(tokens).last_hidden_state)


def test_saved_and_loaded_by_transformers(tmp_path):
    plain = transformers.LlamaForCausalLM(config(transformers.LlamaConfig)).eval()
    model = copy.deepcopy(plain)
    et.convert(model)
    model.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    for (name, p), (other, q) in zip(loaded.named_parameters(), plain.named_parameters(), strict=True):
        assert name == other and torch.equal(p, q)
    assert type(loaded.model.norm).__name__ == "LlamaRMSNorm"

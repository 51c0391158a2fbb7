"""convert() on whole models of Hugging Face's transformers, small and with random weights: what they give before and
after, and each of their norms against the accuracy contract."""

# ruff: noqa: E402  (what needs PyTorch is imported when it is known to be there)
import copy
import functools

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import evenorm.torch as et

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {**SIZES, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64}
IMAGE = {"pixel_values": lambda: torch.randn(2, 3, 32, 32)}
TOKENS = {"input_ids": lambda: torch.randint(3, 100, (2, 12))}
FROZEN = "its tensors (weight, bias, running_mean, running_var) are not weight and bias of a layer or RMS norm"


def detr():
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    return transformers.DetrConfig(
        use_timm_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=5,
    )


def whisper():
    return transformers.WhisperConfig(
        vocab_size=100,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=30,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )


# Model: its configuration, its input, how many norms are replaced, and the classes of those left with the reason.
MODELS = {
    "ConvNextModel": (
        lambda: transformers.ConvNextConfig(hidden_sizes=[8, 12, 16, 32], depths=[1, 1, 2, 1], image_size=32),
        IMAGE,
        10,
        {},
    ),
    "ConvNextV2Model": (
        lambda: transformers.ConvNextV2Config(hidden_sizes=[8, 12, 16, 32], depths=[1, 1, 2, 1], image_size=32),
        IMAGE,
        10,
        {},
    ),
    "SwinModel": (
        lambda: transformers.SwinConfig(
            image_size=32, patch_size=2, embed_dim=8, depths=[1, 2], num_heads=[2, 4], window_size=4
        ),
        IMAGE,
        9,
        {},
    ),
    "ViTModel": (lambda: transformers.ViTConfig(**SIZES, image_size=32, patch_size=8), IMAGE, 5, {}),
    "DetrModel": (detr, {"pixel_values": lambda: torch.randn(2, 3, 64, 64)}, 11, {"DetrFrozenBatchNorm2d": FROZEN}),
    "WhisperModel": (
        whisper,
        {
            "input_features": lambda: torch.randn(2, 16, 60),
            "decoder_input_ids": lambda: torch.randint(3, 100, (2, 7)),
        },
        12,
        {},
    ),
    "BertModel": (lambda: transformers.BertConfig(**SIZES, vocab_size=100), TOKENS, 5, {}),
    "GPT2Model": (lambda: transformers.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4), TOKENS, 5, {}),
    "T5Model": (
        lambda: transformers.T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
        {**TOKENS, "decoder_input_ids": lambda: torch.randint(3, 100, (2, 7))},
        12,
        {},
    ),
    "LlamaModel": (lambda: transformers.LlamaConfig(**DECODER), TOKENS, 5, {}),
    "Qwen3Model": (lambda: transformers.Qwen3Config(**DECODER, head_dim=8), TOKENS, 9, {}),
    "GemmaModel": (lambda: transformers.GemmaConfig(**DECODER, head_dim=8), TOKENS, 5, {}),
    "Gemma3TextModel": (
        lambda: transformers.Gemma3TextConfig(**DECODER, head_dim=8),
        TOKENS,
        13,
        {},
    ),
}


def random_model(name):
    torch.manual_seed(5)
    model = getattr(transformers, name)(MODELS[name][0]()).eval()
    with torch.no_grad():
        for module in model.modules():
            if "norm" in type(module).__name__.lower() and getattr(module, "weight", None) is not None:
                module.weight.add_(torch.randn(module.weight.shape) * 0.3)
                if getattr(module, "bias", None) is not None:
                    module.bias.add_(torch.randn(module.bias.shape) * 0.3)
    return model


def outputs(model, given):
    """Its tensors, and what went into and came out of each module that is called a norm."""
    seen = {}

    def remember(name, module, x, y):
        seen[name] = x[0].detach().clone(), y.detach().clone()

    hooks = [
        module.register_forward_hook(functools.partial(remember, name))
        for name, module in model.named_modules()
        if "norm" in type(module).__name__.lower()
    ]
    result = model(**given)
    for hook in hooks:
        hook.remove()
    return {key: value for key, value in result.items() if isinstance(value, torch.Tensor)}, seen


def largest_error(norm, x, y):
    """In units of u (|gamma| max|xhat| + |beta|), from the formula in float64."""
    if getattr(norm, "data_format", "") == "channels_first":
        x, y = x.movedim(1, -1), y.movedim(1, -1)
    x = x.double()
    gamma = norm.weight.detach().double() + type(norm).__name__.startswith("Gemma")
    beta = getattr(norm, "bias", None)
    centred = x if beta is None else x - x.mean(-1, keepdim=True)
    beta = torch.zeros(()) if beta is None else beta.detach().double()
    eps = next(getattr(norm, name) for name in ("eps", "variance_epsilon") if hasattr(norm, name))
    xhat = centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    bound = 2.0**-24 * (gamma.abs() * xhat.abs().amax(-1, keepdim=True) + beta.abs())
    return float(((y.double() - (xhat * gamma + beta)).abs() / bound).max())


@pytest.mark.parametrize("name", MODELS)
def test_before_and_after(name):
    _, inputs, count, left = MODELS[name]
    plain = random_model(name)
    model = copy.deepcopy(plain)
    report = et.convert(model)
    assert len(report.replaced) == count and report.warnings == (), report
    assert {one.old: one.reason for one in report.left} == left
    named = {one.name for one in (*report.replaced, *report.left)}
    assert named == {key for key, module in plain.named_modules() if is_norm(module)}
    given = {key: make() for key, make in inputs.items()}
    expected, before = outputs(plain, given)
    found, after = outputs(model, given)
    assert list(found) == list(expected)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=2e-5, msg=lambda text, at=key: f"{at}: {text}")
        assert found[key].stride() == value.stride()
    for one in report.replaced:
        x, y = after[one.name]
        assert y.stride() == before[one.name][1].stride()
        assert largest_error(plain.get_submodule(one.name), x, y) <= 4, one
    sum(value.sum() for value in found.values()).backward()
    sum(value.sum() for value in expected.values()).backward()
    for (key, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), key
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-3 * float(q.grad.abs().max()) + 1e-6, msg=key)


def is_norm(module):
    """Layer and RMS norms, and what is called a norm and is none of torch.nn's."""
    own = type(module).__module__.startswith("torch.nn.")
    return isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm) or (
        not own and "norm" in type(module).__name__.lower()
    )

"""evenorm.torch.convert on the norms and the models of Hugging Face's transformers."""

import copy
import importlib

import pytest
import torch
from torch_look_alikes import randomised

import evenorm.torch as et

transformers = pytest.importorskip("transformers")

C = 64
RMS = "rms_norm(x, weight, eps=variance_epsilon)"
LAYER = "layer_norm(x, weight, bias, eps=eps)"
CHANNELS_FIRST = "layer_norm(x, weight, bias, eps=eps, axes=(1,))"

SWAPPED = {
    "llama.LlamaRMSNorm": RMS,
    "qwen3.Qwen3RMSNorm": RMS,
    "t5.T5LayerNorm": RMS,
    "gemma3.Gemma3RMSNorm": "rms_norm(x, 1 + weight, eps=eps)",
    "gemma3n.Gemma3nRMSNorm": "rms_norm(x, weight, eps=eps)",
    "llama4.Llama4TextL2Norm": "rms_norm(x, eps=eps)",
    "deberta.DebertaLayerNorm": "layer_norm(x, weight, bias, eps=variance_epsilon)",
    "nemotron.NemotronLayerNorm1P": "layer_norm(x, 1 + weight, bias, eps=eps)",
    "cohere.CohereLayerNorm": "layer_norm(x, weight, eps=variance_epsilon)",
    "convnext.ConvNextLayerNorm": LAYER,
    "olmo.OlmoLayerNorm": "layer_norm(x, eps=1e-05)",
    "vitdet.VitDetLayerNorm": CHANNELS_FIRST,
    "eomt.EomtLayerNorm2d": CHANNELS_FIRST,
    "squeezebert.SqueezeBertLayerNorm": CHANNELS_FIRST,
    "poolformer.PoolFormerGroupNorm": "group_norm(x, num_groups, weight, bias, eps=eps)",
}
LEFT = {
    "qwen3_next.Qwen3NextRMSNormGated": "its forward takes (hidden_states, gate), not a single tensor",
    "mobilebert.NoNorm": "on random input it differs",
    "detr.DetrFrozenBatchNorm2d": "its tensors (weight, bias, running_mean, running_var) are not weight and bias",
}


def norm_of(path):
    model, name = path.split(".")
    cls = getattr(importlib.import_module(f"transformers.models.{model}.modeling_{model}"), name)
    return randomised(cls() if name == "Llama4TextL2Norm" else cls(C))


@pytest.mark.parametrize(("path", "formula"), SWAPPED.items())
def test_swapped(path, formula):
    norm = norm_of(path)
    plain = copy.deepcopy(norm)
    report = et.convert(norm)
    assert [one.new for one in report.replaced] == [f"evenorm.torch.{formula}"], report
    if formula == CHANNELS_FIRST or "group" in formula:
        x = torch.randn(2, C, 5) if "squeezebert" in path else torch.randn(2, C, 5, C)
        torch.testing.assert_close(norm(x), plain(x), rtol=1e-5, atol=1e-5)
        return
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        x = torch.randn(2, 9, C).to(dtype)
        torch.testing.assert_close(norm.to(dtype)(x), plain.to(dtype)(x), rtol=tolerance, atol=tolerance)
    # Half input with float32 weights gives the type that the module itself gives.
    assert norm.float()(x).dtype == plain.float()(x).dtype


@pytest.mark.parametrize(("path", "reason"), LEFT.items())
def test_left(path, reason):
    report = et.convert(norm_of(path))
    assert report.replaced == () and len(report.left) == 1 and reason in report.left[0].reason, report


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {**SIZES, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64}
ENCODER_DECODER = {
    "d_model": 32,
    **{f"{part}_{name}": value for part in ("encoder", "decoder")
       for name, value in {"layers": 2, "attention_heads": 4, "ffn_dim": 64}.items()},
}  # fmt: skip
WHISPER = {**ENCODER_DECODER, "vocab_size": 100, "num_mel_bins": 16, "max_source_positions": 30,
           "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
           "decoder_start_token_id": 1}  # fmt: skip


def resnet():
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "out_features": ["stage4"]}
    return {"use_timm_backbone": False, "backbone": None, "backbone_config": transformers.ResNetConfig(**sizes)}


def image(size=32):
    return {"pixel_values": torch.randn(2, 3, size, size)}


def tokens(name="input_ids"):
    return {name: torch.randint(3, 100, (2, 12))}


CONVNEXT = {"hidden_sizes": [8, 12, 16, 32], "depths": [1, 1, 2, 1], "image_size": 32}
SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4}
T5 = {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
# The kind of model: its configuration, its input, and the number of norms that are replaced.
MODELS = {
    "ConvNext": (lambda: CONVNEXT, image, 10),
    "Swin": (lambda: SWIN, image, 9),
    "ViT": (lambda: {**SIZES, "image_size": 32, "patch_size": 8}, image, 5),
    "Detr": (lambda: {**ENCODER_DECODER, "num_queries": 5, **resnet()}, lambda: image(64), 11),
    "Whisper": (lambda: WHISPER, lambda: {"input_features": torch.randn(2, 16, 60), **tokens("decoder_input_ids")}, 12),
    "Bert": (lambda: {**SIZES, "vocab_size": 100}, tokens, 5),
    "GPT2": (lambda: {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4}, tokens, 5),
    "T5": (lambda: T5, lambda: {**tokens(), **tokens("decoder_input_ids")}, 12),
    "Llama": (lambda: DECODER, tokens, 5),
    "Qwen3": (lambda: {**DECODER, "head_dim": 8}, tokens, 9),
    "Gemma3Text": (lambda: {**DECODER, "head_dim": 8}, tokens, 13),
}


def is_norm(module):
    """True for layer and RMS norms, and for modules called norms that are not torch.nn's."""
    cls = type(module)
    own = not cls.__module__.startswith("torch.nn.") and "norm" in cls.__name__.lower()
    return own or isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm)


def random_model(kind, model="Model"):
    torch.manual_seed(5)
    config = getattr(transformers, f"{kind}Config")
    made = getattr(transformers, f"{kind}{model}")(config(**MODELS[kind][0]())).eval()
    with torch.no_grad():
        for module in filter(is_norm, made.modules()):
            for parameter in module.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    return made


def outputs(model, given):
    """Returns the model's output tensors, and the strides of each norm's result."""
    strides = {}
    hooks = [
        module.register_forward_hook(lambda module, x, y, name=name: strides.update({name: y.stride()}))
        for name, module in model.named_modules()
        if is_norm(module)
    ]
    result = model(**given)
    for hook in hooks:
        hook.remove()
    return {key: value for key, value in result.items() if isinstance(value, torch.Tensor)}, strides


@pytest.mark.parametrize("kind", MODELS)
def test_models(kind):
    _, inputs, count = MODELS[kind]
    plain = random_model(kind)
    model = copy.deepcopy(plain)
    report = et.convert(model)
    assert len(report.replaced) == count and report.warnings == (), report
    assert {one.old for one in report.left} == ({"DetrFrozenBatchNorm2d"} if kind == "Detr" else set())
    named = {one.name for one in (*report.replaced, *report.left)}
    assert named == {key for key, module in plain.named_modules() if is_norm(module)}
    given = inputs()
    expected, found = outputs(plain, given), outputs(model, given)
    assert found[1] == expected[1]
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=2e-5)
    for result, _ in (expected, found):
        sum(value.sum() for value in result.values()).backward()
    for (key, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), key
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-3 * float(q.grad.abs().max()) + 1e-6, msg=key)


def test_a_language_model_generates_compiles_and_is_saved(tmp_path):
    plain = random_model("Llama", "ForCausalLM")
    model = copy.deepcopy(plain)
    report = et.convert(model)
    assert "model.layers.*.input_layernorm (2)" in repr(report)
    assert type(model.model.norm).__name__ == "LlamaRMSNorm"
    given = tokens()
    generated = [m.generate(**given, max_new_tokens=4, do_sample=False, pad_token_id=0) for m in (model, plain)]
    assert torch.equal(*generated)
    with torch.no_grad():
        torch._dynamo.reset()
        compiled = torch.compile(model.model, backend="eager")(**given).last_hidden_state
        assert torch.equal(compiled, model.model(**given).last_hidden_state)
    model.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    assert type(loaded.model.norm).__name__ == "LlamaRMSNorm"
    for (name, p), (other, q) in zip(loaded.named_parameters(), plain.named_parameters(), strict=True):
        assert name == other and torch.equal(p, q)

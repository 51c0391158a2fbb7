#!/bin/sh
# llm-compressor's SmoothQuant changes what Gemma 2 and Gemma 3 compute, without a warning, though it should only move scales.
#
# llm-compressor 0.14.0.1 and transformers 5.17.0 with PyTorch 2.13.0 on a CPU. SmoothQuant divides a norm's weight by
# scales, and multiplies by them the columns of the linear layers that read the norm. The mapping for Gemma 2 and 3 is
# Llama's: it takes post_attention_layernorm for the norm before gate_proj and up_proj. In these models it is the norm
# after the attention, whose output is added to the residual; pre_feedforward_layernorm is the one before the MLP. With
# random weights, the logits change by more than a tenth of the largest one. Gemma and Llama keep theirs, and so does
# Gemma 2 with mappings that name pre_feedforward_layernorm. evenorm's converted norms behave as the original ones do.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip --disable-pip-version-check install --quiet torch==2.13.0 numpy==2.4.6 llmcompressor==0.14.0.1 \
  transformers==5.17.0
cat >"$folder/check.py" <<'END'
import sys

import torch
import transformers as hf
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
from tokenizers import Tokenizer, models

sizes = dict(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=64)
ids = torch.randint(3, 128, (16, 32), generator=torch.Generator().manual_seed(1))
data = Dataset.from_dict({"input_ids": ids.tolist(), "attention_mask": torch.ones_like(ids).tolist()})
words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(128)}, unk_token="t0"))
own = [[["re:.*q_proj", "re:.*k_proj", "re:.*v_proj"], "re:.*input_layernorm"],
       [["re:.*gate_proj", "re:.*up_proj"], "re:.*pre_feedforward_layernorm"]]


def change(config, model, **options):
    folder = f"{sys.argv[1]}/{model.__name__}"
    torch.manual_seed(0)
    model(config(**sizes)).save_pretrained(folder)
    smoothed = model.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        before = smoothed(ids).logits
        oneshot(model=smoothed, processor=hf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0"), dataset=data,
                recipe=[SmoothQuantModifier(**options)], num_calibration_samples=16, max_seq_length=32)
        change = ((smoothed(ids).logits - before).abs().max() / before.abs().max()).item()
    kept = "as they were" if change < 1e-5 else "changed by more than 0.1" if change > 0.1 else f"changed by {change}"
    print(f"{model.__name__}{' with mappings' if options else ''}: logits {kept}", flush=True)


change(hf.LlamaConfig, hf.LlamaForCausalLM)
change(hf.GemmaConfig, hf.GemmaForCausalLM)
change(hf.Gemma2Config, hf.Gemma2ForCausalLM)
change(hf.Gemma3TextConfig, hf.Gemma3ForCausalLM)
change(hf.Gemma2Config, hf.Gemma2ForCausalLM, mappings=own)
END
cd "$folder"
HF_HUB_OFFLINE=1 "$python" -W ignore check.py "$folder" 2>"$folder/errors" >"$folder/all" || { tail -20 "$folder/errors"; exit 1; }
grep ': logits' "$folder/all" >"$folder/seen"
cat "$folder/seen"
diff "$folder/seen" - <<'END'
LlamaForCausalLM: logits as they were
GemmaForCausalLM: logits as they were
Gemma2ForCausalLM: logits changed by more than 0.1
Gemma3ForCausalLM: logits changed by more than 0.1
Gemma2ForCausalLM with mappings: logits as they were
END

"""A tiny random model of another one's architecture, with a tokenizer of bytes.

Run as ``python -m spade_async.fake.model FOLDER CONFIG_JSON`` (it imports torch): the second is the
text of the real model's config.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WIDTH, LAYERS, HEADS, HEAD_DIM = 64, 2, 4, 32
EXPERTS, EXPERTS_USED = 8, 2
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
_TEMPLATE = """\
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif -%}
{%- endif -%}
"""
"""Has a thinking switch, so that recipes with either setting are obeyed."""


def small(real: dict[str, Any], vocabulary: int) -> dict[str, Any]:
    """The config.json of the tiny model: the kind and the switches of `real`, other sizes."""
    heads, kv_heads = real["num_attention_heads"], real.get("num_key_value_heads")
    changed = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS if kv_heads in (None, heads) else HEADS // 2,
        "head_dim": HEAD_DIM,
        "vocab_size": vocabulary,
        "dtype": "float32",
    }
    if real.get("num_experts"):
        changed |= {
            "moe_intermediate_size": WIDTH,
            "num_experts": EXPERTS,
            "num_experts_per_tok": EXPERTS_USED,
        }
    found = {k: v for k, v in real.items() if k not in ("max_window_layers", "layer_types")}
    return found | changed


def write(folder: Path, real: dict[str, Any]) -> None:
    """Write model and tokenizer as an ordinary Hugging Face folder; the same each time."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = _tokenizer()
    settings = small(real, len(tokenizer))
    settings |= {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    torch.manual_seed(0)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def _tokenizer() -> Any:
    """One token per byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIAL])
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token=_SPECIAL[0], eos_token=_SPECIAL[2]
    )
    fast.chat_template = _TEMPLATE
    return fast


if __name__ == "__main__":
    write(Path(sys.argv[1]), json.loads(sys.argv[2]))

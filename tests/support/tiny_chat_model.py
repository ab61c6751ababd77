"""Tiny random causal LMs, with a character tokenizer and a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

# Threads that wait for each other on a busy machine are slower than one.
torch.set_num_threads(1)

SPECIAL = ("<pad>", "<|end|>", "<unk>", "<|user|>", "<|assistant|>")
CHARACTERS = [chr(c) for c in (10, *range(32, 127))]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
KINDS: dict[str, tuple[type, type]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
}


def make_chat_tokenizer(template: str = TEMPLATE, special: tuple[str, ...] = SPECIAL) -> Any:
    """A character tokenizer whose role markers are control tokens."""
    words = [*special, *(c for c in CHARACTERS if c not in special)]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<|end|>",
        unk_token="<unk>",
        additional_special_tokens=[t for t in special if t not in ("<pad>", "<|end|>", "<unk>")],
    )
    fast.chat_template = template
    return fast


def make_chat_model(
    folder: Path,
    kind: str = "llama",
    *,
    seed: int = 0,
    tied: bool = True,
    heads: int = 4,
    kv_heads: int = 2,
    layers: int = 2,
    hidden: int = 32,
    context: int = 256,
    tokenizer: Any = None,
    **config: Any,
) -> Path:
    """Save model and tokenizer as an ordinary Hugging Face folder; returns the folder."""
    tokenizer = make_chat_tokenizer() if tokenizer is None else tokenizer
    config_class, model_class = KINDS[kind]
    model = model_class(
        config_class(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=context,
            tie_word_embeddings=tied,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            **config,
        )
    )
    with torch.no_grad():
        for name, tensor in different_weights(model, seed).items():
            model.state_dict()[name].copy_(tensor)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def different_weights(model: Any, seed: int) -> dict[str, torch.Tensor]:
    """A set of clearly different random weights for a model; what is tied stays tied."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[int, torch.Tensor] = {}
    weights = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in made:
            noise = torch.randn(tensor.shape, generator=generator)
            # At 0.25 rounding alone comes near the 1e-5 that tests of log-probabilities allow.
            made[id(tensor)] = 1 + 0.1 * noise if tensor.dim() == 1 else 0.15 * noise
        weights[name] = made[id(tensor)]
    return weights

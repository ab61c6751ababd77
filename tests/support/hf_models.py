"""Random models of several architectures, saved as Hugging Face folders with the tiny tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.support.tiny_model import make_tiny_llama

COMMON = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 384,
    "initializer_range": 0.1,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": SIZES | {"tie_word_embeddings": False},
    "qwen2": SIZES | {"tie_word_embeddings": True},
    "qwen3": SIZES | {"tie_word_embeddings": False},
    "qwen3_moe": SIZES
    | {
        "tie_word_embeddings": False,
        "moe_intermediate_size": 48,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
    },
    "gpt2": {
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": 384,
        # Twice the usual: the adapter's and the head's change must be seen.
        "initializer_range": 0.1,
    },
    "gemma2": SIZES | {"sliding_window": 384, "query_pre_attn_scalar": 32},
}


def make_model(folder: Path, kind: str, seed: int = 0, **changes: Any) -> Path:
    """Save a random model of a kind of `KINDS`; returns the folder."""
    make_tiny_llama(folder)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    config = CONFIG_MAPPING[kind](**(COMMON | KINDS[kind] | changes))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return folder

"""Random models of a given size for the bench of publishing."""

from __future__ import annotations

from pathlib import Path


def save_model(folder: Path, *, width: int, layers: int) -> int:
    """A Llama with a vocabulary of 150 (width 128, 4 layers: nano); gives its bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=150,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 32,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return (folder / "model.safetensors").stat().st_size

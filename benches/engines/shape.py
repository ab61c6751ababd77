"""Random Llamas of a given shape, as a Hugging Face folder. They say nothing sensible."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Shape:
    """A tied Llama in float32; heads of a size that vLLM's attention on a CPU knows."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int


NANO = Shape(150, 128, 384, 4, 4, 4, 32)
M1 = Shape(1024, 128, 384, 4, 4, 4, 32)
"""1.0 million weights."""
M135 = Shape(49_152, 576, 1536, 30, 9, 3, 64)
"""SmolLM2-135M's: 134.5 million."""
M500 = Shape(151_936, 896, 4864, 24, 14, 2, 64)
"""Qwen2.5-0.5B's, without its biases: 494 million."""


def save_model(folder: Path, shape: Shape) -> int:
    """Write a model of that shape; gives the bytes of its weights' file."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder, max_shard_size="100GB")
    return (folder / "model.safetensors").stat().st_size

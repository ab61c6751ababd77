"""The nano architecture: a small Llama, fp32, as an ordinary transformers model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spade_async.nano import vocabulary as v

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

MAX_POSITIONS = 512


def build_model(seed: int) -> LlamaForCausalLM:
    """An untrained model of about 0.9 M parameters, its weights drawn from `seed`.

    head_dim is 32, the smallest that common attention kernels serve.
    """
    import torch
    import transformers

    tokens = v.vocabulary()
    config = transformers.LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=tokens.index(v.PAD),
        eos_token_id=tokens.index(v.END),
        bos_token_id=None,
        initializer_range=0.05,
    )
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed % 2**63)
    try:
        model: Any = transformers.LlamaForCausalLM
        built: LlamaForCausalLM = model(config).float()
        return built
    finally:
        torch.set_rng_state(generator_state)

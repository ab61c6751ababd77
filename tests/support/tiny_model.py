"""A random Llama small enough for unit tests, saved with a character tokenizer."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")


def make_tiny_llama(
    folder: Path,
    vocab: int = 64,
    hidden: int = 32,
    layers: int = 2,
    seed: int = 0,
    heads: int = 2,
    context: int = 384,
) -> Path:
    """Save model and tokenizer as an ordinary Hugging Face folder; returns the folder."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab,
                hidden_size=hidden,
                intermediate_size=hidden * 8 // 3 // 8 * 8,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=heads,
                max_position_embeddings=context,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                tie_word_embeddings=True,
                initializer_range=0.2,
            )
        )
    model.save_pretrained(folder)
    characters = [chr(c) for c in (10, *range(32, 32 + max(0, vocab - len(SPECIAL) - 1)))]
    words = [*SPECIAL, *characters][:vocab]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    fast.save_pretrained(folder)
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    (folder / "tokenizer_hash.txt").write_text(digest + "\n")
    return folder

"""The same step for both sides: model, token ids, rewards. Imports nothing of spade_async."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

LENGTHS = Path(__file__).with_name("lengths.json")
"""Drawn once (log-normal) and kept: prompts with median 48, replies with median 160."""
LR, BETAS, GRAD_CLIP, CLIP = 1e-5, (0.9, 0.95), 1.0, 0.2


@dataclass(frozen=True, slots=True)
class Size:
    """Model and batch."""

    width: int
    layers: int
    vocabulary: int
    groups: int
    divisor: int
    """Lengths are divided by it."""
    steps: int
    """Measured, after one that is not."""


FULL = Size(width=256, layers=4, vocabulary=8192, groups=8, divisor=1, steps=2)
QUICK = Size(width=32, layers=2, vocabulary=256, groups=2, divisor=8, steps=1)


@dataclass(frozen=True, slots=True)
class Reply:
    """One sequence."""

    prompt: list[int]
    reply: list[int]
    reward: float


def _draw(rng: np.random.Generator, length: int, size: Size) -> list[int]:
    """Token ids above the special ones."""
    found: list[int] = rng.integers(4, size.vocabulary, max(2, length // size.divisor)).tolist()
    return found


def groups(size: Size) -> list[list[Reply]]:
    """Replies by prompt; token ids and rewards (0 or 1, both in each group) are drawn by a seed."""
    rng = np.random.default_rng(8)
    found = []
    for entry in json.loads(LENGTHS.read_text())[: size.groups]:
        prompt = _draw(rng, entry["prompt"], size)
        rewards = rng.integers(0, 2, len(entry["replies"]))
        rewards[:2] = 0, 1
        lengths = zip(entry["replies"], rewards.tolist(), strict=True)
        found.append([Reply(prompt, _draw(rng, n, size), float(r)) for n, r in lengths])
    return found


def trained_tokens(size: Size) -> int:
    """Of a step."""
    return sum(len(reply.reply) for group in groups(size) for reply in group)


def save_model(folder: Path, size: Size) -> None:
    """A Llama with weights drawn by a seed, and a tokenizer that only has to exist."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    heads = size.width // 32
    config = LlamaConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, intermediate_size=3 * size.width,
        num_hidden_layers=size.layers, num_attention_heads=heads, num_key_value_heads=heads,
        max_position_embeddings=4096, tie_word_embeddings=False, pad_token_id=0, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    words = {f"w{i}": i for i in range(size.vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w3"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="w0", bos_token="w1", eos_token="w2", unk_token="w3"
    ).save_pretrained(folder)


def model_flops(size: Size) -> float:
    """Forward and backward of a step without padding: 6 per weight and token, and attention."""
    total = 0.0
    per_token = size.layers * (4 * size.width**2 + 3 * size.width * 3 * size.width)
    for group in groups(size):
        for reply in group:
            length = len(reply.prompt) + len(reply.reply) - 1
            total += 6.0 * per_token * length
            # Scores and values: 2 products of length^2/2 (causal) x width, three times (backward).
            total += 3 * 2 * 2 * size.layers * size.width * length**2 / 2
            total += 6.0 * size.width * size.vocabulary * len(reply.reply)
    return total


def matmul_flops_per_s() -> float:
    """Of a square product in float32 with this process's threads: best of 5."""
    import torch

    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - began)
    return 2 * 1024**3 / best


def peak_bytes() -> int:
    """Largest resident size of this process so far (Linux)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def versions() -> dict[str, str]:
    """Of what both sides must share."""
    import torch
    import transformers

    return {"torch": torch.__version__, "transformers": transformers.__version__}


def plain(size: Size) -> dict[str, Any]:
    """For the figures' file."""
    return asdict(size)

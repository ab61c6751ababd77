"""Measures a nano model: validity of its designs, accuracy of its answers. For tests and reports.

A plain sampler without KV cache, apart from the engine, so that it can also judge the engine's
model. Nothing that the model writes is run: validity is by `recognise`, a lower bound.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade_async.nano.families import FAMILIES, LEVELS
from spade_async.nano.grammar import HELD_OUT_SEED, draw
from spade_async.nano.labels import labels
from spade_async.nano.lessons import agent_lesson, designer_lessons
from spade_async.nano.recognise import recognise
from spade_async.seeds import derive

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class DesignFigures:
    """What sampled designs are like."""

    num_samples: int
    num_valid: int
    num_distinct: int
    """Distinct valid texts."""
    families: dict[str, int]
    """Valid designs per family."""
    levels: dict[str, int]
    """Valid designs per level."""


def sample(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: list[str],
    *,
    temperature: float,
    max_new_tokens: int,
    seed: int,
) -> list[str]:
    """One reply per prompt, without the end token; temperature 0 is greedy."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    encoded = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    by_length: dict[int, list[int]] = {}
    for i, ids in enumerate(encoded):
        by_length.setdefault(len(ids), []).append(i)
    replies = [""] * len(prompts)
    with torch.inference_mode():
        for rows in by_length.values():
            ids = torch.tensor([encoded[i] for i in rows])
            start, ended = ids.shape[1], torch.zeros(len(rows), dtype=torch.bool)
            cache = None
            for _ in range(max_new_tokens):
                step = ids if cache is None else ids[:, -1:]
                out = model(input_ids=step, past_key_values=cache, use_cache=True)
                cache, logits = out.past_key_values, out.logits[:, -1]
                if temperature == 0.0:
                    token = logits.argmax(-1)
                else:
                    shares = torch.softmax(logits / temperature, -1)
                    token = torch.multinomial(shares, 1, generator=generator)[:, 0]
                token = torch.where(ended, tokenizer.eos_token_id, token)
                ids = torch.cat([ids, token[:, None]], 1)
                ended |= token == tokenizer.eos_token_id
                if bool(ended.all()):
                    break
            for i, row in zip(rows, ids[:, start:].tolist(), strict=True):
                reply = (
                    row[: row.index(tokenizer.eos_token_id)]
                    if tokenizer.eos_token_id in row
                    else row
                )
                replies[i] = str(tokenizer.decode(reply))
    return replies


def design_figures(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    num_samples: int = 192,
    temperature: float = 1.0,
    seed: int = 0,
) -> DesignFigures:
    """Sample designs for prompts of the lessons' kind and judge them."""
    lessons = designer_lessons(derive(seed, "probe-designs"))
    prompts = [next(lessons).prompt for _ in range(num_samples)]
    texts = sample(
        model, tokenizer, prompts, temperature=temperature, max_new_tokens=100, seed=seed
    )
    valid = [text for text in texts if recognise(text) is not None]
    found = [labels(text) for text in valid]
    return DesignFigures(
        num_samples,
        len(valid),
        len(set(valid)),
        dict(Counter(f.get("family", "") for f in found)),
        dict(Counter(f.get("level", "") for f in found)),
    )


def answer_accuracy(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    per_level: int = 288,
    hinted: bool,
    temperature: float,
    seed: int = 0,
) -> dict[tuple[str, int], float]:
    """Exact-match share per (family, level) on held-out instances; ("", level) is the level's."""
    rng = random.Random(derive(seed, "probe-answers"))
    names = tuple(FAMILIES)
    keys = [(names[i % len(names)], level) for level in LEVELS for i in range(per_level)]
    lessons = [
        agent_lesson(draw(rng, name, level, held_out=True), HELD_OUT_SEED + i, hinted=hinted)
        for i, (name, level) in enumerate(keys)
    ]
    replies = sample(
        model,
        tokenizer,
        [lesson.prompt for lesson in lessons],
        temperature=temperature,
        max_new_tokens=14,
        seed=seed,
    )
    right: dict[tuple[str, int], list[bool]] = {}
    for (name, level), lesson, reply in zip(keys, lessons, replies, strict=True):
        for key in ((name, level), ("", level)):
            right.setdefault(key, []).append(reply.strip() == lesson.reply)
    return {key: sum(hits) / len(hits) for key, hits in right.items()}


def report(folder: Path) -> str:
    """Lines with the figures of a model folder: designs at temperature 1, answers per level."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    designs = design_figures(model, tokenizer)
    lines = [
        f"designs at T=1: {designs.num_valid}/{designs.num_samples} in the grammar, "
        f"{designs.num_distinct} distinct; levels {designs.levels}; families {designs.families}"
    ]
    for temperature in (0.0, 1.0):
        for hinted in (False, True):
            shares = answer_accuracy(model, tokenizer, hinted=hinted, temperature=temperature)
            levels = " ".join(f"{shares['', level]:.2f}" for level in LEVELS)
            arm = "with hint" if hinted else "no hint  "
            lines.append(f"answers {arm} at T={temperature:g}, levels 1-4 (288 each): {levels}")
    return "\n".join(lines)

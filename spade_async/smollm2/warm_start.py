"""Conversion and a short supervised warm start: full fine-tuning in fp32 on one thread.

Not part of a run: the learner never sees this code. Same seed, same machine, same weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from spade_async.disk.model_cache import Progress
from spade_async.smollm2.cache import Size
from spade_async.smollm2.convert import convert, find_package
from spade_async.smollm2.lessons import Lesson, agent_lessons, designer_lessons

PEAK_LR = 2e-4
"""Of AdamW; decays linearly to near zero."""
WARMUP_STEPS = 3
GRAD_CLIP = 1.0
PASS_TOKENS = 512
"""Tokens per forward pass, padding included: the logits of 49k words are what fills memory."""
_CONVERSION_SHARE = 0.1


def warm_start(folder: Path, seed: int, size: Size, progress: Progress) -> None:
    """Write model and tokenizer into `folder`, trained for `size.steps` steps."""
    file, release = find_package()
    progress(0.0, f"smollm2: converting {file.name} of release {release}")
    import torch

    torch.set_num_threads(1)
    model, tokenizer = convert(file, folder)
    if size.steps:
        _train(model, tokenizer, seed, size, progress)
        model.save_pretrained(str(folder))
    progress(1.0, "smollm2: done")


def rate(step: int, num_steps: int) -> float:
    """Share of the peak rate at a 0-based step: linear warm-up, then linear decay to near zero."""
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    return (num_steps - step) / max(1, num_steps - WARMUP_STEPS)


def _train(model: Any, tokenizer: Any, seed: int, size: Size, progress: Progress) -> None:
    import torch

    designs, answers = designer_lessons(seed), agent_lessons(seed)
    adam = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.98), weight_decay=0.0)
    model.train()
    for step in range(size.steps):
        share = _CONVERSION_SHARE + (1 - _CONVERSION_SHARE) * step / size.steps
        adam.param_groups[0]["lr"] = PEAK_LR * rate(step, size.steps)
        designer_loss = _backward(model, tokenizer, list(islice(designs, size.programs)))
        agent_loss = _backward(model, tokenizer, list(islice(answers, size.answers)))
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRAD_CLIP)
        adam.step()
        adam.zero_grad(set_to_none=True)
        losses = f"loss designer {designer_loss:.3f} agent {agent_loss:.3f}"
        progress(share, f"smollm2 warm start: step {step + 1}/{size.steps}, {losses}")
    model.train(False)


@dataclass(frozen=True, slots=True)
class _Sequence:
    ids: list[int]
    start: int
    """Position of the first taught token."""


def _backward(model: Any, tokenizer: Any, lessons: list[Lesson]) -> float:
    """Add the gradient of the mean taught-token loss of the lessons; returns that loss."""
    import torch

    sequences = sorted((_encode(tokenizer, lesson) for lesson in lessons), key=lambda s: len(s.ids))
    num_taught = sum(len(s.ids) - s.start for s in sequences)
    total = 0.0
    for part in _passes(sequences):
        loss = _loss(model, part) / num_taught
        torch.autograd.backward(loss)
        total += float(loss.detach())
    return total


def _encode(tokenizer: Any, lesson: Lesson) -> _Sequence:
    """Prompt by the model's own template, reply, end token."""
    turns = [{"role": turn.role, "content": turn.content} for turn in lesson.turns]
    prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    reply = tokenizer(lesson.reply, add_special_tokens=False)["input_ids"]
    return _Sequence([*ids, *reply, tokenizer.eos_token_id], len(ids))


def _passes(sequences: list[_Sequence]) -> Iterator[list[_Sequence]]:
    """Consecutive parts of sequences (sorted by length) of about `PASS_TOKENS` tokens."""
    part: list[_Sequence] = []
    for sequence in sequences:
        if part and (len(part) + 1) * len(sequence.ids) > PASS_TOKENS:
            yield part
            part = []
        part.append(sequence)
    if part:
        yield part


def _loss(model: Any, sequences: list[_Sequence]) -> Any:
    """Summed cross-entropy of the taught tokens. Padding is on the right: causality hides it."""
    import torch

    longest = max(len(s.ids) for s in sequences)
    ids = torch.tensor([s.ids + [0] * (longest - len(s.ids)) for s in sequences])
    places = torch.arange(longest)[None]
    starts = torch.tensor([s.start for s in sequences])[:, None]
    ends = torch.tensor([len(s.ids) for s in sequences])[:, None]
    taught = (places >= starts) & (places < ends)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    logits = model.lm_head(hidden[taught[:, 1:]])
    return torch.nn.functional.cross_entropy(logits, ids[taught], reduction="sum")

"""Scoring through body and head equals the whole model, for the architectures of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from spade_async.grpo.batch import build_micro_batch
from spade_async.grpo.loss import token_logprobs
from spade_async.learner import scoring
from spade_async.learner.scoring import TokenScorer, why_whole
from spade_async.types import Role
from tests.support.train_samples import random_samples

torch.set_num_threads(1)

TEMPERATURES = {Role.AGENT: 0.7, Role.DESIGNER: 1.3}
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama tied": ("Llama", SIZES | {"tie_word_embeddings": True}),
    "llama untied": ("Llama", SIZES | {"tie_word_embeddings": False}),
    "qwen3": ("Qwen3", SIZES | {"tie_word_embeddings": True}),
    "gpt2": ("GPT2", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}),
    "phi with a bias": ("Phi", SIZES),
    "opt": (
        "OPT",
        SIZES | {"ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
    ),
    "gemma2 capped": ("Gemma2", SIZES),
    "granite scaled": ("Granite", SIZES | {"logits_scaling": 2.0}),
}


def make(kind: str) -> Any:
    name, settings = KINDS[kind]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**settings)
    config.bos_token_id = config.eos_token_id = None
    model_class = {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
    return getattr(transformers, model_class)(config).eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk_tokens", [5, 10_000])
def test_log_probabilities_entropy_and_gradient_are_those_of_the_whole_model(
    kind: str, chunk_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "CHUNK_LOGITS", chunk_tokens * 64)
    model = make(kind)
    micro = build_micro_batch(random_samples(6), TEMPERATURES)
    upstream = torch.randn(2, len(micro.targets), generator=torch.Generator().manual_seed(1))

    def gradient(logprobs: torch.Tensor, entropy: torch.Tensor) -> tuple[torch.Tensor, ...]:
        model.zero_grad()
        (torch.stack((logprobs, entropy)) * upstream / len(micro.targets)).sum().backward()
        grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        return logprobs.detach(), entropy.detach(), torch.cat(grads)

    logits = model(
        input_ids=micro.token_ids_RL, attention_mask=micro.attention_mask_RL, use_cache=False
    ).logits[micro.rows, micro.columns]
    expected = gradient(
        *token_logprobs(logits, micro.targets, micro.temperatures, entropy_gradient=True)
    )
    found = gradient(*TokenScorer(model)(micro, entropy_gradient=True))
    for ours, theirs in zip(found, expected, strict=True):
        bound = 1e-6 * max(1.0, float(theirs.abs().max()))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_changes_its_logits_behind_the_head_is_named(kind: str) -> None:
    expected = {
        "gemma2 capped": "config.final_logit_softcapping=30.0 changes the logits behind the head",
        "granite scaled": "config.logits_scaling=2.0 changes the logits behind the head",
    }
    assert why_whole(make(kind)) == expected.get(kind)


def test_logits_changed_in_a_way_without_a_setting_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make("llama untied")
    whole = model.forward

    def shifted(*args: Any, **kwargs: Any) -> Any:
        output = whole(*args, **kwargs)
        output.logits = output.logits + 0.01
        return output

    monkeypatch.setattr(model, "forward", shifted)
    assert why_whole(model) == (
        "its logits are not its output head on its base model's last hidden states"
    )

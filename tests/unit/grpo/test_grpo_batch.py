from __future__ import annotations

import pytest
import torch

from spade_async.grpo.batch import (
    ROLE_NUMBERS,
    Normaliser,
    build_micro_batch,
    has_gradient,
    num_input_tokens,
)
from spade_async.grpo.plan import plan_micro_batches
from spade_async.types import Role
from tests.support.train_samples import make_sample, random_samples

TEMPERATURES = {Role.AGENT: 1.0, Role.DESIGNER: 0.5}


def test_padded_size_of_the_built_tensors_is_the_planned_one() -> None:
    samples = random_samples(30)
    lengths = [num_input_tokens(s) for s in samples]
    for part in plan_micro_batches(lengths, 64):
        micro = build_micro_batch([samples[i] for i in part], TEMPERATURES)
        assert micro.token_ids_RL.numel() == len(part) * max(lengths[i] for i in part)


def test_each_trained_token_is_predicted_from_the_place_before_it() -> None:
    first = make_sample(
        "a", token_ids=(10, 11, 12, 13, 14), loss_mask=(0, 1, 0, 1, 0), logprobs=(0, -1, 0, -2, 0)
    )
    second = make_sample(
        "b",
        role=Role.DESIGNER,
        advantage=-2.0,
        staleness=3,
        token_ids=(20, 21),
        loss_mask=(0, 1),
        logprobs=(0, -3),
    )
    micro = build_micro_batch([first, second], TEMPERATURES)
    # the last two tokens of the first sample predict nothing that is trained
    assert micro.token_ids_RL.tolist() == [[10, 11, 12], [20, 0, 0]]
    assert micro.attention_mask_RL.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert micro.rows.tolist() == [0, 0, 1]
    assert micro.columns.tolist() == [0, 2, 0]
    assert micro.targets.tolist() == [11, 13, 21]
    assert micro.generator_logprobs.tolist() == [-1.0, -2.0, -3.0]
    assert micro.advantages.tolist() == [1.0, 1.0, -2.0]
    assert micro.temperatures.tolist() == [1.0, 1.0, 0.5]
    assert micro.roles.tolist() == [ROLE_NUMBERS[Role.AGENT]] * 2 + [ROLE_NUMBERS[Role.DESIGNER]]
    assert micro.staleness.tolist() == [0, 0, 3]


def test_values_under_a_zero_mask_never_reach_the_tensors() -> None:
    nan = float("nan")
    sample = make_sample("a", logprobs=(nan, nan, -1.0, -1.0))
    assert torch.isfinite(build_micro_batch([sample], TEMPERATURES).generator_logprobs).all()


def test_the_denominator_counts_every_trained_token_of_the_step() -> None:
    samples = [
        make_sample("a", loss_mask=(0, 1, 1, 1)),
        make_sample("b", advantage=0.0, loss_mask=(0, 0, 0, 1)),
        make_sample("c", role=Role.DESIGNER),
    ]
    normaliser = Normaliser.of(samples)
    assert (normaliser.agent_tokens, normaliser.designer_tokens) == (4, 2)
    assert normaliser.token_scale(designer_weight=3.0).tolist() == [0.25, 1.5]


def test_a_role_without_tokens_has_no_denominator() -> None:
    scale = Normaliser.of([make_sample("a")]).token_scale(1.0)
    assert scale.tolist() == pytest.approx([0.5, 0.0])


def test_zero_advantage_has_a_gradient_only_under_an_agent_kl() -> None:
    agent = make_sample("a", advantage=0.0)
    designer = make_sample("d", advantage=0.0, role=Role.DESIGNER)
    assert not has_gradient(agent, kl_to_start=0.0)
    assert has_gradient(agent, kl_to_start=0.1)
    assert not has_gradient(designer, kl_to_start=0.1)
    assert has_gradient(make_sample("x", advantage=-0.1), kl_to_start=0.0)

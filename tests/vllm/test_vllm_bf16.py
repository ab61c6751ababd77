"""vLLM in bfloat16 under a learner in float32: a real mismatch, which the correction weighs."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from spade_async.engine.attested import TOLERANCES, AttestedEngine, NotAttested
from spade_async.grpo.correction.tis_token import truncated_weights
from spade_async.types import PolicyVersion
from spade_async.weights.attestation import Attestation, probe_sequences
from tests.support.vllm_world import World, prompt, sampling

ENGINE = {"slots": 16, "vllm": {"dtype": "bfloat16"}}


def attestation(world: World, step: int) -> Attestation:
    """The probe as a learner computes it; digests say nothing to vLLM."""
    sequences = probe_sequences(7, 90).tolist()
    logprobs = [world.logprobs(step, ids, len(ids) - 1).tolist() for ids in sequences]
    return Attestation(tensors={"model.norm.weight": "0"}, ids=sequences, logprobs=logprobs)


def test_the_correction_weighs_the_mismatch(
    runner: asyncio.Runner, world: World, engine: Any
) -> None:
    assert engine.dtype == "bfloat16"
    runner.run(world.push(engine, 1))

    async def work() -> list[Any]:
        return await asyncio.gather(
            *(engine.generate(prompt(i, 40), sampling(i, tokens=120)) for i in range(24))
        )

    generator, learner = [], []
    for i, said in enumerate(runner.run(work())):
        generator.append(said.logprobs)
        ids = [*prompt(i, 40), *said.token_ids.tolist()]
        learner.append(world.logprobs(1, ids, len(said.token_ids)))
    behaviour, policy = (torch.from_numpy(np.concatenate(x)) for x in (generator, learner))
    gap = (policy - behaviour).abs()
    # Far above rounding in fp32 (1e-5), far below another policy.
    assert 1e-3 < gap.mean() < 0.1
    weights = truncated_weights(policy, behaviour, cap=1e9)
    # Under the sampling policy the mean of pi/mu is exactly 1: the weights take the mismatch out.
    error = weights.std() / len(weights) ** 0.5
    assert abs(weights.mean() - 1) < 5 * error
    capped = truncated_weights(policy, behaviour, cap=1.0)
    assert capped.max() <= 1.0
    assert (capped < 1.0).any()


def test_an_attested_swap_knows_bfloat16_from_other_weights(
    runner: asyncio.Runner, world: World, engine: Any
) -> None:
    async def work() -> None:
        guarded = AttestedEngine(engine)
        right = world.publish(2)
        done = await guarded.load_attested(
            PolicyVersion(0, 2), right.location, right.digest, attestation(world, 2)
        )
        assert 1e-4 < done.probe_gap < TOLERANCES["bfloat16"]
        other = world.publish(3)
        with pytest.raises(NotAttested, match="differ by"):
            await guarded.load_attested(
                PolicyVersion(0, 3), other.location, other.digest, attestation(world, 2)
            )

    runner.run(work())

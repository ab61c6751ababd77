"""A mixture of experts in fp32: vLLM loads a learner's checkpoint and takes its pushes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spade_async.config.schema import Config
from spade_async.engine.protocol import Generation
from spade_async.learner.checkpoint import save_checkpoint
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.hf_models import make_model
from tests.support.train_samples import random_samples
from tests.support.vllm_world import TOLERANCE, config, sampling

LEARNER = Config.model_validate({"learner": {"lr": 1e-2, "warmup_steps": 0}})
CONTEXT = 128
PROMPT = [5, 9, 33, 12, 7, 60, 21]


def train(state: LearnerState, step: int) -> None:
    """One step that moves every kind of weight."""
    before = {n: p.detach().clone() for n, p in state.parameters.items()}
    assert Updater(state, LEARNER).update(random_samples(8, seed=step), step).applied
    assert all(not torch.equal(before[n], p) for n, p in state.parameters.items())
    state.version = PolicyVersion(0, step)


def check(state: LearnerState, said: Generation) -> float:
    """The largest difference between vLLM's log-probabilities and the learner's."""
    ids = torch.tensor([[*PROMPT, *said.token_ids.tolist()]])
    with torch.no_grad():
        every = torch.log_softmax(state.model(input_ids=ids).logits[0, :-1], -1)
    mine = every.gather(1, ids[0, 1:, None]).squeeze(1)[len(PROMPT) - 1 :]
    return float(np.abs(mine.numpy() - said.logprobs).max())


def test_engine_and_learner_agree_from_a_checkpoint_and_after_a_push(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    from spade_async.engine.vllm.engine import VllmEngine

    start = make_model(tmp_path / "start", "qwen3_moe", moe_intermediate_size=64)
    state = LearnerState.create(start, LEARNER.learner, PolicyVersion(0, 0))
    train(state, 1)
    checkpoint = tmp_path / save_checkpoint(tmp_path, state, start)
    store = FileWeightStore(tmp_path / "weights", keep=3)

    async def scenario(engine: Any) -> None:
        assert check(state, await engine.generate(PROMPT, sampling(1))) < TOLERANCE
        # Twice: what packs the experts again must find them plain each time.
        for step in (2, 3):
            train(state, step)
            published = store.publish(state.version, state.published_tensors(file_names=True))
            await engine.load_weights(state.version, published.location, published.digest)
            assert check(state, await engine.generate(PROMPT, sampling(step))) < TOLERANCE

    engine = runner.run(VllmEngine.create(checkpoint, config(), CONTEXT))
    try:
        runner.run(scenario(engine))
    finally:
        runner.run(engine.close())

"""A push under running requests with engine.on_swap="keep": they go on over their old keys.

The model is a learner's checkpoint, loaded as any folder.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from spade_async.config.schema import Config
from spade_async.engine.protocol import Generation
from spade_async.learner.checkpoint import save_checkpoint
from spade_async.learner.state import LearnerState
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.vllm_world import (
    CONTEXT,
    TOLERANCE,
    World,
    check_generation,
    config,
    make_model,
    prompt,
    sampling,
    until,
)

LEARNER = Config.model_validate({}).learner


def test_tokens_before_a_push_are_of_the_old_weights_and_none_is_read_again(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    from spade_async.engine.vllm.engine import VllmEngine

    start = make_model(tmp_path / "start")
    state = LearnerState.create(start, LEARNER, PolicyVersion(0, 0))
    checkpoint = tmp_path / save_checkpoint(tmp_path, state, start)
    world = World(checkpoint, FileWeightStore(tmp_path / "weights", keep=3))

    async def scenario(engine: Any) -> tuple[list[Generation], Generation]:
        asked = [
            asyncio.create_task(engine.generate(prompt(i), sampling(i, tokens=200)))
            for i in range(4)
        ]
        await until(lambda: engine.stats()["tokens"] > 60)
        await world.push(engine, 1)
        running = await asyncio.gather(*asked)
        return running, await engine.generate(prompt(7), sampling(7))

    async def whole() -> tuple[list[Generation], Generation, dict[str, float]]:
        engine = await VllmEngine.create(checkpoint, config(on_swap="keep"), CONTEXT)
        try:
            return *(await scenario(engine)), engine.stats()
        finally:
            await engine.close()

    running, later, stats = runner.run(whole())
    assert stats["swaps"] == 1
    assert stats["recomputed_tokens"] == 0
    old, new = PolicyVersion(0, 0).packed, PolicyVersion(0, 1).packed
    for i, said in enumerate(running):
        assert len(said.token_ids) == 200
        assert set(said.versions.tolist()) == {old, new}
        assert (np.diff(said.versions) >= 0).all()
        ids = [*prompt(i), *said.token_ids.tolist()]
        before = said.versions == old
        expected = world.logprobs(0, ids, 200)[before]
        np.testing.assert_allclose(said.logprobs[before], expected, atol=TOLERANCE)
        # Over old keys, so not what a full pass of the new weights says.
        full = world.logprobs(1, ids, 200)[~before]
        assert np.abs(said.logprobs[~before] - full).max() > TOLERANCE
    # A request that began after the push has keys of the new weights alone.
    assert set(later.versions.tolist()) == {new}
    check_generation(world, prompt(7), later)

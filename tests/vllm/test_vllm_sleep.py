"""vLLM asleep: it stands still while the learner has the device, loses nothing, and goes on.

On a CPU nothing leaves the memory; the pause, the requests and the deaths are the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from spade_async.engine.vllm.engine import VllmEngine
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.vllm_world import (
    CONTEXT,
    World,
    check_generation,
    config,
    make_model,
    prompt,
    sampling,
    until,
)

pytestmark = pytest.mark.timeout(300)


def test_requests_wait_through_a_sleep_and_weights_through_a_death_in_it(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    world = World(make_model(tmp_path / "start"), FileWeightStore(tmp_path / "weights", keep=3))

    async def scenario() -> None:
        engine = await VllmEngine.create(world.folder, config(), CONTEXT, sleeps=True)
        try:
            await _one_turn(engine, world)
            await _a_death_asleep(engine, world)
        finally:
            await engine.close()

    runner.run(scenario())


async def _one_turn(engine: VllmEngine, world: World) -> None:
    asked = [
        asyncio.create_task(engine.generate(prompt(i), sampling(i, tokens=120))) for i in range(4)
    ]
    await until(lambda: engine.stats()["tokens"] > 40)
    await engine.sleep()
    tokens = engine.stats()["tokens"]
    late = asyncio.create_task(engine.generate(prompt(9), sampling(9)))
    pushed = asyncio.create_task(world.push(engine, 1))
    await asyncio.sleep(1.0)
    assert engine.stats()["tokens"] == tokens
    assert not any(task.done() for task in (*asked, late, pushed))
    await engine.wake()
    said = await asyncio.gather(*asked, late)
    await pushed
    assert engine.stats()["swaps"] == 1
    assert engine.stats()["engine_deaths"] == 0
    # Under the weights that each token names, nothing of an old key among them.
    assert [len(one.token_ids) for one in said] == [120] * 4 + [24]
    for i, one in zip((0, 1, 2, 3, 9), said, strict=True):
        check_generation(world, prompt(i), one)


async def _a_death_asleep(engine: VllmEngine, world: World) -> None:
    asked = asyncio.create_task(engine.generate(prompt(5), sampling(5, tokens=120)))
    before = engine.stats()["tokens"]
    await until(lambda: engine.stats()["tokens"] > before + 10)
    await engine.sleep()
    os.kill(engine.pids[0], signal.SIGKILL)
    await until(lambda: engine.stats()["engine_deaths"] == 1)
    await asyncio.sleep(1.0)
    # Its model would be on the device that the learner has.
    assert engine.pids == []
    await engine.wake()
    said = await asked
    assert len(said.token_ids) == 120
    assert set(said.versions.tolist()) == {PolicyVersion(0, 1).packed}
    check_generation(world, prompt(5), said)

"""The meter between a task and the engine."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.engine.protocol import Generation, Sampling
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import GenerationError
from spade_async.generator.meter import EngineMeter

SAMPLING = Sampling(temperature=1.0, max_new_tokens=4, stop_token_ids=(0,), seed=1)


def test_time_in_the_engine_is_told_from_the_rest() -> None:
    async def use() -> tuple[dict[str, float], Generation]:
        meter = EngineMeter(ScriptedEngine([[5, 0]], delay_s=0.1))
        await meter.generate([1], SAMPLING)
        await asyncio.sleep(0.1)
        generation = await meter.generate([1], SAMPLING)
        return meter.timing(), generation

    timing, generation = asyncio.run(use())
    assert list(generation.token_ids) == [5, 0]
    assert timing["engine_s"] >= 0.2
    assert timing["total_s"] >= timing["engine_s"] + 0.1
    assert timing["queue_s"] == 0.0


def test_waiting_for_a_slot_is_no_work_of_the_engine() -> None:
    class Queueing(ScriptedEngine):
        async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
            found = await super().generate(prompt_ids, sampling)
            return Generation(
                found.token_ids, found.logprobs, found.versions, found.finish_reason, queue_s=0.05
            )

    async def use() -> dict[str, float]:
        meter = EngineMeter(Queueing([[5, 0]], delay_s=0.1))
        await meter.generate([1], SAMPLING)
        return meter.timing()

    timing = asyncio.run(use())
    assert timing["queue_s"] == 0.05
    assert timing["engine_s"] + 0.05 <= timing["total_s"]


def test_a_request_that_fails_counts_and_fails() -> None:
    async def use() -> dict[str, float]:
        engine = ScriptedEngine([[5, 0]], delay_s=0.05)
        meter = EngineMeter(engine)
        running = asyncio.ensure_future(meter.generate([1], SAMPLING))
        await asyncio.sleep(0.01)
        engine.failed = RuntimeError("gone")
        with pytest.raises(GenerationError):
            await running
        assert meter.stats()["requests"] == 1.0
        return meter.timing()

    assert asyncio.run(use())["engine_s"] > 0.0

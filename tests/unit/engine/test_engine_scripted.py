from __future__ import annotations

import asyncio

import pytest

from spade_async.engine.protocol import Engine, Sampling
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import GenerationError, WeightsError
from spade_async.types import PolicyVersion
from tests.support.asynchronous import run_async

SAMPLING = Sampling(temperature=1.0, max_new_tokens=3, stop_token_ids=(9,), seed=0)


@run_async
async def test_replies_are_said_in_turn_and_cut_at_the_limit() -> None:
    engine: Engine = ScriptedEngine([[1, 9], [1, 2, 3, 4]], logprob=-0.25)
    first, second, third = [await engine.generate([5], SAMPLING) for _ in range(3)]
    assert (first.token_ids.tolist(), first.finish_reason) == ([1, 9], "stop")
    assert (second.token_ids.tolist(), second.finish_reason) == ([1, 2, 3], "length")
    assert third.token_ids.tolist() == [1, 9]
    assert first.logprobs.tolist() == [-0.25, -0.25]
    assert (await engine.score([1, 2, 3], 1.0)).tolist() == [-0.25, -0.25]
    assert engine.stats()["tokens"] == 7


@run_async
async def test_a_function_can_answer_by_prompt_and_versions_are_waited_for() -> None:
    engine = ScriptedEngine(lambda prompt, _: [prompt[0] + 1], version=PolicyVersion(0, 1))
    late = PolicyVersion(1, 1)
    held = asyncio.create_task(
        engine.generate([4], Sampling(1.0, 3, (9,), seed=0, min_version=late.packed))
    )
    assert (await engine.generate([1], SAMPLING)).versions.tolist() == [1]
    assert engine.stats()["waiting"] == 1
    await engine.load_weights(late, "somewhere", "d")
    made = await held
    assert made.token_ids.tolist() == [5]
    assert made.versions.tolist() == [late.packed]
    assert [report.version for report in engine.loads] == [late]


@run_async
async def test_loads_can_be_refused_and_older_ones_are() -> None:
    def check(location: str, digest: str) -> None:
        raise WeightsError(f"{location} is damaged")

    engine = ScriptedEngine([[1]], check=check, version=PolicyVersion(0, 3))
    with pytest.raises(WeightsError, match="damaged"):
        await engine.load_weights(PolicyVersion(0, 4), "x", "")
    with pytest.raises(WeightsError, match="older"):
        await engine.load_weights(PolicyVersion(0, 2), "x", "")
    assert engine.version == PolicyVersion(0, 3)


@run_async
async def test_a_failed_or_closed_engine_fails_every_call() -> None:
    engine = ScriptedEngine([[1]], delay_s=0.01)
    running = asyncio.create_task(engine.generate([1], SAMPLING))
    held = asyncio.create_task(engine.generate([1], Sampling(1.0, 1, (), 0, min_version=5)))
    await asyncio.sleep(0)
    await engine.close()
    for task in (running, held):
        with pytest.raises(GenerationError, match="closed"):
            await task
    engine.failed = RuntimeError("gone")
    with pytest.raises(GenerationError, match="gone"):
        await engine.score([1], 1.0)

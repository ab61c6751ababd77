"""A generator gives the device up when its engine sleeps, and wakes it when it is back on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spade_async.cluster.turns import DeviceTurn
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import GenerationError
from spade_async.generator.turns import Turns
from tests.support.asynchronous import run_async

pytestmark = pytest.mark.timeout(60)


class Sleeper(ScriptedEngine):
    """Notes what happens, in order."""

    def __init__(self, folder: Path) -> None:
        super().__init__([])
        self.events: list[str] = []
        self._look = DeviceTurn(folder)

    async def sleep(self) -> None:
        with pytest.raises(InterruptedError), self._look.as_learner(_interrupt):
            pytest.fail("nobody may be on the device before the engine sleeps")
        self.events.append("asleep")

    async def wake(self) -> None:
        self.events.append("awake")


async def _until_awake(turns: Turns) -> None:
    async with asyncio.timeout(10):
        while turns.is_asleep:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def _interrupt() -> None:
    raise InterruptedError


@run_async
async def test_one_turn_of_the_learner(tmp_path: Path) -> None:
    turns, engine = await Turns.begin(tmp_path), Sleeper(tmp_path)
    turns.watch(engine)

    def train() -> None:
        with DeviceTurn(tmp_path).as_learner(lambda: None):
            engine.events.append("trained")
            assert turns.is_asleep

    for _ in range(2):
        await asyncio.to_thread(train)
        await _until_awake(turns)
    await turns.end()
    assert engine.events == ["asleep", "trained", "awake"] * 2
    assert turns.slept_s > 0


@run_async
async def test_who_needs_an_answer_keeps_the_engine_awake(tmp_path: Path) -> None:
    turns, engine = await Turns.begin(tmp_path), Sleeper(tmp_path)
    turns.watch(engine)
    learner = DeviceTurn(tmp_path)

    def train() -> None:
        with learner.as_learner(lambda: None):
            engine.events.append("trained")

    async with turns.staying_awake:
        training = asyncio.create_task(asyncio.to_thread(train))
        await asyncio.sleep(0.2)
        assert engine.events == []
    await training
    await _until_awake(turns)
    await turns.end()
    assert engine.events == ["asleep", "trained", "awake"]


@run_async
async def test_a_generator_that_comes_back_waits_for_the_end_of_the_step(tmp_path: Path) -> None:
    with DeviceTurn(tmp_path).as_learner(lambda: None):
        coming = asyncio.create_task(Turns.begin(tmp_path))
        await asyncio.sleep(0.1)
        assert not coming.done()
    await (await coming).end()


@run_async
async def test_an_engine_that_cannot_sleep_ends_the_generator(tmp_path: Path) -> None:
    class Broken(Sleeper):
        async def sleep(self) -> None:
            raise GenerationError("the engine is dead")

    turns = await Turns.begin(tmp_path)
    turns.watch(Broken(tmp_path))
    learner = asyncio.create_task(asyncio.to_thread(_take, tmp_path))
    with pytest.raises(GenerationError):
        await turns.failed
    await turns.end()
    await learner


def _take(folder: Path) -> None:
    with DeviceTurn(folder).as_learner(lambda: None):
        pass

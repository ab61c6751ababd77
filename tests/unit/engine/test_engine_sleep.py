"""The built-in engine asleep: nothing is said, nothing is lost, and the same tokens come."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spade_async.config.schema import EngineConfig
from spade_async.engine.builtin import BuiltinEngine
from spade_async.engine.protocol import Generation, Sampling
from spade_async.errors import GenerationError
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.tiny_model import make_tiny_llama

CONTEXT, TOKENS = 256, 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def ask(engine: BuiltinEngine, seed: int) -> asyncio.Task[Generation]:
    return asyncio.create_task(engine.generate([5, 6, 7 + seed], Sampling(1.0, TOKENS, (), seed)))


async def until(engine: BuiltinEngine, tokens: float) -> None:
    async with asyncio.timeout(30):
        while engine.stats()["tokens"] < tokens:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_a_sleep_changes_no_token_and_weights_wait_for_its_end(
    folder: Path, tmp_path: Path
) -> None:
    async def talk(naps: int) -> list[list[int]]:
        engine = await BuiltinEngine.create(folder, EngineConfig(slots=4), CONTEXT)
        asked = [ask(engine, seed) for seed in range(3)]
        for nap in range(naps):
            await until(engine, 30.0 * (nap + 1))
            await engine.sleep()
            before = engine.stats()["tokens"]
            late = ask(engine, 9)
            await asyncio.sleep(0.1)
            assert engine.stats()["tokens"] == before
            await engine.wake()
            await late
        said = [(await task).token_ids.tolist() for task in asked]
        await engine.close()
        return said

    assert asyncio.run(talk(2)) == asyncio.run(talk(0))

    async def load() -> None:
        engine = await BuiltinEngine.create(folder, EngineConfig(), CONTEXT)
        tensors = engine._model.parameters.by_name()
        published = FileWeightStore(tmp_path, keep=2).publish(PolicyVersion(0, 1), tensors)
        await engine.sleep()
        loading = asyncio.create_task(
            engine.load_weights(PolicyVersion(0, 1), published.location, published.digest)
        )
        await asyncio.sleep(0.1)
        assert not loading.done()
        await engine.wake()
        assert (await loading).version == engine.version == PolicyVersion(0, 1)
        await engine.close()

    asyncio.run(load())


def test_it_can_be_closed_asleep(folder: Path) -> None:
    async def close() -> None:
        engine = await BuiltinEngine.create(folder, EngineConfig(), CONTEXT)
        asked = ask(engine, 1)
        await until(engine, 1.0)
        await engine.sleep()
        async with asyncio.timeout(10):
            await engine.close()
            with pytest.raises(GenerationError, match="closed"):
                await asked

    asyncio.run(close())

"""What a weight swap does to samples in flight: under them token by token, or never."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade_async.config.schema import EngineConfig
from spade_async.config.scripted import ScriptedConfig
from spade_async.engine.builtin import BuiltinEngine
from spade_async.engine.builtin.decoder import Decoder
from spade_async.engine.leases import one_version
from spade_async.engine.protocol import Generation, Sampling
from spade_async.engine.scripted import ScriptedEngine
from spade_async.engine.scripted_paced import PacedEngine
from spade_async.engine.scripted_weights import write_weights
from spade_async.errors import GenerationError
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.asynchronous import run_async
from tests.support.tiny_chat_model import different_weights, make_chat_model

ONE, TWO, THREE = (PolicyVersion(0, step) for step in (1, 2, 3))
LONG = Sampling(temperature=1.0, max_new_tokens=60, stop_token_ids=(), seed=3)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chat_model(tmp_path_factory.mktemp("llama"))


def fresh_weights(folder: Path, seed: int) -> Any:
    from transformers import AutoModelForCausalLM

    return different_weights(AutoModelForCausalLM.from_pretrained(folder), seed)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decode step takes long enough that a test can act between two of them."""
    decode = Decoder.step

    def slowly(decoder: Decoder) -> Any:
        time.sleep(0.01)
        return decode(decoder)

    monkeypatch.setattr(Decoder, "step", slowly)


@asynccontextmanager
async def builtin(folder: Path, **config: Any) -> AsyncIterator[BuiltinEngine]:
    finish = config.pop("finish", True)
    engine = await BuiltinEngine.create(folder, EngineConfig(**config), 96, finish=finish)
    try:
        yield engine
    finally:
        await engine.close()


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - the engine thread has no event to wait for
        await asyncio.sleep(0.002)


async def sample(engine: Any, seed: int, turns: int = 1) -> list[Generation]:
    """The requests of one sample, each prompt the end of the one before."""
    said: list[Generation] = []
    prompt = [5 + seed, 7]
    async with one_version(engine, 0) as version:
        for _ in range(turns):
            wanted = replace(LONG, seed=seed, version=version, max_new_tokens=60 // turns)
            said.append(await engine.generate(prompt, wanted))
            prompt = [*prompt, *said[-1].token_ids.tolist()]
    return said


@run_async
async def test_samples_end_on_the_weights_they_began_with_and_new_ones_begin_on_the_newest(
    llama: Path, slow: None, tmp_path: Path
) -> None:
    store = FileWeightStore(tmp_path, keep=4)
    published = [store.publish(v, fresh_weights(llama, v.step)) for v in (ONE, TWO)]
    async with builtin(llama, slots=4) as engine:
        old = [asyncio.create_task(sample(engine, i, turns=2)) for i in range(3)]
        await until(lambda: engine.stats()["tokens"] >= 9)
        await engine.load_weights(ONE, published[0].location, published[0].digest)
        assert engine.stats()["active"] == 3
        new = [asyncio.create_task(sample(engine, i)) for i in range(3)]
        third = asyncio.create_task(
            engine.load_weights(TWO, published[1].location, published[1].digest)
        )
        await until(lambda: engine.stats()["active"] == 4)
        assert not third.done(), "the oldest of two weight sets is still sampled from"
        for said in await asyncio.gather(*old):
            assert {int(v) for one in said for v in one.versions} == {0}
        await third
        assert engine.version == TWO
        for said in await asyncio.gather(*new):
            assert set(said[0].versions.tolist()) == {ONE.packed}
        with pytest.raises(GenerationError, match="not held"):
            await engine.generate([5], replace(LONG, version=0))


@run_async
async def test_what_was_sampled_under_the_older_of_two_sets_is_exact(
    llama: Path, slow: None, tmp_path: Path
) -> None:
    """Tokens and log-probabilities equal those of an engine that never saw another version."""
    store = FileWeightStore(tmp_path, keep=4)
    published = store.publish(ONE, fresh_weights(llama, 1))
    async with builtin(llama, slots=4, finish=False) as alone:
        wanted = [(await sample(alone, i))[0] for i in range(3)]
    async with builtin(llama, slots=4) as engine:
        tasks = [asyncio.create_task(sample(engine, i)) for i in range(3)]
        await until(lambda: engine.stats()["tokens"] >= 9)
        await engine.load_weights(ONE, published.location, published.digest)
        others = asyncio.create_task(sample(engine, 9))
        for expected, said in zip(wanted, await asyncio.gather(*tasks), strict=True):
            assert said[0].token_ids.tolist() == expected.token_ids.tolist()
            np.testing.assert_allclose(said[0].logprobs, expected.logprobs, atol=1e-5)
        await others


@run_async
async def test_a_swap_goes_under_running_requests_where_that_is_asked_for(
    llama: Path, slow: None, tmp_path: Path
) -> None:
    store = FileWeightStore(tmp_path, keep=4)
    published = store.publish(ONE, fresh_weights(llama, 1))
    async with builtin(llama, slots=4, finish=False) as engine:
        assert engine.leases is None
        task = asyncio.create_task(sample(engine, 1))
        await until(lambda: engine.stats()["tokens"] >= 5)
        before = engine.stats()["tokens"]
        await engine.load_weights(ONE, published.location, published.digest)
        after = engine.stats()["tokens"]
        (said,) = await task
        switch = int(np.argmax(said.versions == ONE.packed))
        assert said.versions.tolist() == [0] * switch + [ONE.packed] * (60 - switch)
        assert before <= switch <= after + 1


@run_async
async def test_paced_spans_switch_at_the_token_of_the_swap(tmp_path: Path) -> None:
    store = FileWeightStore(tmp_path, keep=4)
    published = store.publish_file(ONE, lambda path: write_weights(path, ONE))
    config = ScriptedConfig(token_s=0.01, episode_tokens=60, sigma=0.0)
    for finish in (False, True):
        engine = PacedEngine(config, slots=4, finish=finish)
        began_s = time.monotonic()
        task = asyncio.create_task(sample(engine, 1))
        await asyncio.sleep(0.2)
        asked_s = time.monotonic()
        await engine.load_weights(ONE, published.location, published.digest)
        loaded_s = time.monotonic()
        (said,) = await task
        switch = int((said.versions == 0).sum())
        assert said.versions.tolist() == [0] * switch + [ONE.packed] * (60 - switch)
        if finish:
            assert switch == 60
        else:
            # Token k is sampled k * token_s after the request began, a little after `began_s`.
            assert math.floor((asked_s - began_s) / 0.01) - 5 <= switch
            assert switch <= math.ceil((loaded_s - began_s) / 0.01)
        await engine.close()


@run_async
async def test_turns_of_one_scripted_sample_are_of_one_version_and_a_third_set_waits() -> None:
    engine = ScriptedEngine([[1, 2]], delay_s=0.05, finish=True)
    task = asyncio.create_task(sample(engine, 1, turns=4))
    await asyncio.sleep(0.02)
    await engine.load_weights(ONE, "", "")
    second = asyncio.create_task(engine.load_weights(TWO, "", ""))
    await asyncio.sleep(0.06)
    assert not second.done()
    assert {int(v) for one in await task for v in one.versions} == {0}
    await second
    assert engine.version == TWO
    assert {int(v) for one in await sample(engine, 1) for v in one.versions} == {TWO.packed}


@run_async
async def test_a_cancelled_sample_gives_its_lease_back_and_a_closed_engine_lets_nobody_wait() -> (
    None
):
    engine = ScriptedEngine([[1, 2]], delay_s=30.0, finish=True)
    assert engine.leases is not None
    task = asyncio.create_task(sample(engine, 1))
    await asyncio.sleep(0.01)
    await engine.load_weights(ONE, "", "")
    assert engine.leases.num(0) == 1
    second = asyncio.create_task(engine.load_weights(TWO, "", ""))
    task.cancel()
    await asyncio.wait_for(second, 10.0)
    assert engine.leases.num(0) == 0

    async def begin_late() -> None:
        async with one_version(engine, THREE.packed):
            pass

    late = asyncio.create_task(begin_late())
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(GenerationError, match="closed"):
        await late

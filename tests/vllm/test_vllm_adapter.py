"""Adapters pushed alone: vLLM says what transformers computes with the adapter merged."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade_async.engine.attested import AttestedEngine, NotAttested
from spade_async.engine.protocol import Generation
from spade_async.engine.vllm.adapters import Adapters
from spade_async.errors import WeightsError
from spade_async.learner.attest import attestation
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support import vllm_adapters
from tests.support.vllm_adapters import AdapterWorld
from tests.support.vllm_world import (
    TOLERANCE,
    check_generation,
    make_model,
    over_two_swaps,
    prompt,
    sampling,
    until,
)

ENGINE = {"vllm": {"update_tries": 2}}
LORA = vllm_adapters.LORA


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> AdapterWorld:
    root = tmp_path_factory.mktemp("adapter")
    return AdapterWorld(make_model(root / "model"), FileWeightStore(root / "weights", keep=3))


def _folders(world: AdapterWorld) -> list[Path]:
    return list(world.store.folder.glob(".adapter-*"))


def test_the_merged_model_is_met_before_and_after_each_push(
    runner: asyncio.Runner, world: AdapterWorld, engine: Any
) -> None:
    """Prompts of more than a block: what one version cached is not read under another."""
    asked = [prompt(1, 12), prompt(2, 300)]
    for step in (0, 1, 2):
        if step:
            published = world.publish(step)
            assert Path(published.location).stat().st_size < 120_000
            runner.run(world.push(engine, step))
        for i, ids in enumerate(asked):
            for _ in range(2):
                said = runner.run(engine.generate(ids, sampling(i)))
                assert set(said.versions.tolist()) == {step}
                check_generation(world, ids, said)
        found = runner.run(engine.score(asked[1], 1.0))
        np.testing.assert_allclose(found, world.logprobs(step, asked[1], 299), atol=TOLERANCE)
    assert len(_folders(world)) <= 2


def test_requests_in_flight_go_on_under_the_newest_adapter_token_by_token(
    runner: asyncio.Runner, world: AdapterWorld, engine: Any
) -> None:
    answers = runner.run(over_two_swaps(world, engine))
    seen = set()
    for ids, said in answers:
        seen.add(tuple(np.unique(said.versions)))
        assert len(said.token_ids) == 180
        assert (np.diff(said.versions) >= 0).all()
        check_generation(world, ids, said)
    assert any(len(versions) > 1 for versions in seen), seen
    assert engine.stats()["recomputed_tokens"] > 0
    assert engine.stats()["engine_deaths"] == 0
    assert len(_folders(world)) <= 2


def test_a_load_that_fails_changes_nothing_and_the_next_one_is_whole(
    runner: asyncio.Runner, world: AdapterWorld, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways: every try fails, and only the first one does."""
    from spade_async.engine.vllm import adapters

    whole, start, tries = adapters._write, engine.version.step, []
    num_bad = 2

    def write(staged: Any, number: int) -> Any:
        made = whole(staged, number)
        tries.append(number)
        if len(tries) <= num_bad:
            (made.folder / "adapter_config.json").write_text("{}")
        return made

    monkeypatch.setattr(adapters, "_write", write)

    async def work(step: int) -> Generation:
        running = asyncio.create_task(engine.generate(prompt(1), sampling(1, tokens=200)))
        begun = engine.stats()["tokens"]
        await until(lambda: engine.stats()["tokens"] > begun + 20)
        with pytest.raises(WeightsError, match=rf"0\.{step} does not go into vLLM"):
            await world.push(engine, step)
        return await running

    said = runner.run(work(start + 1))
    assert set(said.versions.tolist()) == {start}
    check_generation(world, prompt(1), said)
    assert engine.stats()["failed_updates"] == 2
    assert engine.version.step == start
    num_bad = 3
    runner.run(world.push(engine, start + 2))
    assert len(set(tries)) == len(tries) == 4
    said = runner.run(engine.generate(prompt(2), sampling(2)))
    assert set(said.versions.tolist()) == {start + 2}
    check_generation(world, prompt(2), said)
    assert engine.stats()["engine_deaths"] == 0


def test_what_is_not_this_models_adapter_is_refused(
    runner: asyncio.Runner, world: AdapterWorld, engine: Any
) -> None:
    version = PolicyVersion(0, 90)
    good = {name: tensor.clone() for name, tensor in world.state.published_adapter().items()}
    name = next(iter(good))
    bad = {
        "has no other half": {k: v for k, v in good.items() if k != name},
        "which the model does not have": {k.replace("layers.0", "layers.7"): v
                                          for k, v in good.items()},
        "of rank 4 on": good | {name: good[name][:2].clone()},
        "not finite": good | {name: good[name] * float("nan")},
        "not an adapter": dict(world.models[0].state_dict()),
    }  # fmt: skip
    for words, tensors in bad.items():
        published = world.store.publish(version, tensors)
        with pytest.raises(WeightsError, match=words):
            runner.run(engine.load_weights(version, published.location, published.digest))
    published = world.store.publish(version, good)
    with pytest.raises(WeightsError, match="announced was"):
        runner.run(engine.load_weights(version, published.location, "0" * 64))
    assert engine.version < version


def test_an_adapter_is_proven_by_the_learners_probe(
    runner: asyncio.Runner, world: AdapterWorld, engine: Any
) -> None:
    step = engine.version.step + 1
    guarded, version = AttestedEngine(engine), PolicyVersion(0, step)
    published = world.publish(step)
    expected = attestation(world.state, world.state.published_adapter(), run_seed=0)
    found = runner.run(
        guarded.load_attested(version, published.location, published.digest, expected)
    )
    assert found.probe_gap < 1e-4
    published = world.publish(step + 1)
    with pytest.raises(NotAttested, match="the probe's log-probabilities"):
        runner.run(
            guarded.load_attested(
                PolicyVersion(0, step + 1), published.location, published.digest, expected
            )
        )


def test_after_a_death_the_newest_adapter_is_pushed_again(
    runner: asyncio.Runner, world: AdapterWorld, engine: Any
) -> None:
    start = engine.version.step

    async def work() -> Generation:
        task = asyncio.create_task(engine.generate(prompt(5), sampling(5, tokens=250)))
        begun = engine.stats()["tokens"]
        await until(lambda: engine.stats()["tokens"] > begun + 20)
        await world.push(engine, start + 1)
        after = engine.stats()["tokens"]
        await until(lambda: engine.stats()["tokens"] > after + 20)
        for path in world.store.folder.glob("weights-*"):
            path.unlink()
        for pid in engine.pids:
            os.kill(pid, signal.SIGKILL)
        return await task

    said = runner.run(work())
    assert len(said.token_ids) == 250
    assert set(said.versions.tolist()) == {start, start + 1}
    check_generation(world, prompt(5), said)
    assert engine.stats()["engine_deaths"] == 1
    said = runner.run(engine.generate(prompt(6), sampling(6)))
    assert set(said.versions.tolist()) == {start + 1}
    check_generation(world, prompt(6), said)


def test_with_keep_a_request_ends_under_the_adapter_it_began_with(
    runner: asyncio.Runner, world: AdapterWorld, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until that is older than the one before the newest; what nobody uses leaves vLLM."""
    monkeypatch.setattr(engine, "_recompute", False)
    start = engine.version.step
    adapters: Adapters = engine._core.adapters

    async def work() -> list[Generation]:
        tasks = []
        for step in (start, start + 1, start + 2):
            if step > start:
                await world.push(engine, step)
            ids = prompt(40 + step)
            tasks.append(asyncio.create_task(engine.generate(ids, sampling(step, tokens=300))))
            before = engine.stats()["tokens"]
            await until(lambda before=before: engine.stats()["tokens"] > before + 20)
        return await asyncio.gather(*tasks)

    first, second, third = runner.run(work())
    # Two swaps went by the first one: it was moved at the second.
    assert np.unique(first.versions).tolist() == [start, start + 2]
    assert np.unique(second.versions).tolist() == [start + 1]
    assert np.unique(third.versions).tolist() == [start + 2]
    for step, said in zip((start, start + 1, start + 2), (first, second, third), strict=True):
        check_generation(world, prompt(40 + step), said)
    runner.run(world.push(engine, start + 3))
    assert [version.step for version in adapters.versions] == [start + 2, start + 3]
    assert set(runner.run(engine._core._llm.list_loras())) == {a.number for a in adapters._held}


def test_a_closed_engine_leaves_no_adapter_behind(
    runner: asyncio.Runner, world: AdapterWorld, engine: Any
) -> None:
    assert _folders(world)
    runner.run(engine.close())
    assert not _folders(world)

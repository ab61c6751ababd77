"""A model whose head is its own, with biases, in fp32: parity, and what dies comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest

from spade_async.engine.protocol import Generation
from spade_async.engine.vllm.core import Core
from spade_async.engine.vllm.staged import StagedWeights
from spade_async.errors import WeightsError
from spade_async.types import PolicyVersion
from tests.support.vllm_world import (
    World,
    check_generation,
    prompt,
    sampling,
    until,
)

MODEL = {"kind": "qwen2", "tied": False}
ENGINE = {"vllm": {"update_tries": 2}}


def test_parity_before_and_after_a_push(runner: asyncio.Runner, world: World, engine: Any) -> None:
    for step in (0, 1):
        if step:
            runner.run(world.push(engine, step))
        for i in range(3):
            said = runner.run(engine.generate(prompt(i, 30), sampling(i)))
            assert set(said.versions.tolist()) == {step}
            check_generation(world, prompt(i, 30), said)


def test_death_in_flight_costs_no_token_that_was_said(
    runner: asyncio.Runner, world: World, engine: Any
) -> None:
    """Two swaps are behind it; the dead engine's tokens are kept, the newest weights pushed."""

    async def work() -> tuple[list[Generation], list[list[int]]]:
        asked = [asyncio.create_task(engine.generate(prompt(i), sampling(i, tokens=250)))
                 for i in range(6)]  # fmt: skip
        await until(lambda: engine.stats()["tokens"] > begun + 100)
        await world.push(engine, 2)
        after = engine.stats()["tokens"]
        await until(lambda: engine.stats()["tokens"] > after + 100)
        said = [list(stream.state.detokenizer.output_token_ids) for stream in running()]
        for pid in engine.pids:
            os.kill(pid, signal.SIGKILL)
        return await asyncio.gather(*asked), said

    def running() -> list[Any]:
        return sorted(engine._places.running, key=lambda stream: stream.sampling.seed)

    begun = engine.stats()["tokens"]
    results, before = runner.run(work())
    assert before
    for i, (said, kept) in enumerate(zip(results, before, strict=False)):
        assert said.token_ids.tolist()[: len(kept)] == kept
        assert len(said.token_ids) == 250
        check_generation(world, prompt(i), said)
    for i in (4, 5):  # waited for a slot
        check_generation(world, prompt(i), results[i])
    assert {1, 2} <= set(np.unique(np.concatenate([r.versions for r in results])).tolist())
    stats = engine.stats()
    assert stats["engine_deaths"] == 1
    assert stats["resubmitted_requests"] >= 4
    assert stats["resubmitted_tokens"] >= 100
    assert stats["version"] == PolicyVersion(0, 2).packed
    runner.run(world.push(engine, 3))
    check_generation(world, prompt(9), runner.run(engine.generate(prompt(9), sampling(9))))


def test_an_update_that_never_succeeds_leaves_the_old_weights(
    runner: asyncio.Runner, world: World, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests in flight go on in a new process, on the weights before."""
    whole = StagedWeights.file_info
    bad = PolicyVersion(0, 4)

    def info(staged: StagedWeights) -> dict[str, Any]:
        found = whole(staged)
        if staged.version == bad:
            wrong = {"model.layers.1.self_attn.o_proj.weight": "model.norm.weight"}
            found["names"] = found["names"] | wrong
        return found

    monkeypatch.setattr(StagedWeights, "file_info", info)

    async def work() -> Generation:
        running = asyncio.create_task(engine.generate(prompt(1), sampling(1, tokens=200)))
        begun = engine.stats()["tokens"]
        await until(lambda: engine.stats()["tokens"] > begun + 20)
        with pytest.raises(WeightsError, match=r"weights 0\.4 do not go into vLLM"):
            await world.push(engine, bad.step)
        return await running

    said = runner.run(work())
    assert set(said.versions.tolist()) == {3}
    check_generation(world, prompt(1), said)
    assert engine.version == PolicyVersion(0, 3)
    assert engine.stats()["failed_updates"] == 2
    assert engine.stats()["engine_deaths"] == 2
    monkeypatch.undo()
    runner.run(world.push(engine, 5))
    check_generation(world, prompt(2), runner.run(engine.generate(prompt(2), sampling(2))))


def test_death_while_weights_go_in_is_answered_by_both(
    runner: asyncio.Runner, world: World, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the start of an update and its end: restarted, and the same load goes on."""
    update = Core._update

    async def dying(core: Core, *arguments: Any) -> None:
        monkeypatch.undo()
        await core._llm.start_weight_update()
        for pid in core.pids:
            os.kill(pid, signal.SIGKILL)
        await update(core, *arguments)

    monkeypatch.setattr(Core, "_update", dying)
    deaths = engine.stats()["engine_deaths"]
    runner.run(world.push(engine, 6))
    assert engine.stats()["engine_deaths"] == deaths + 1
    said = runner.run(engine.generate(prompt(3), sampling(3)))
    assert set(said.versions.tolist()) == {6}
    check_generation(world, prompt(3), said)


def test_closing_fails_what_is_in_flight_and_leaves_no_process(
    runner: asyncio.Runner, engine: Any
) -> None:
    async def work() -> list[int]:
        task = asyncio.create_task(engine.generate(prompt(1), sampling(1, tokens=300)))
        begun = engine.stats()["tokens"]
        await until(lambda: engine.stats()["tokens"] > begun + 5)
        pids = engine.pids
        await engine.close()
        with pytest.raises(Exception, match="was closed"):
            await task
        return pids

    pids = runner.run(work())
    assert pids
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    with pytest.raises(Exception, match="is closed"):
        runner.run(engine.generate(prompt(1), sampling(1)))

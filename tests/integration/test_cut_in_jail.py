"""A cut task in the real jail: its worker is killed and its place free, long before any limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from spade_async.agent.episode import Player
from spade_async.config.schema import Config
from spade_async.designer import games
from spade_async.engine.scripted import ScriptedEngine
from spade_async.generator.context import GeneratorContext
from spade_async.generator.play_task import run_play
from spade_async.sandbox import Pool, SandboxPolicy
from spade_async.transport.messages import EpisodeResult, PlayTask
from tests.support.fake_tokens import STOP, FakeTokens, ids

STUCK = """
class StuckEnv:
    def reset(self, seed=None):
        return "ready", {}
    def step(self, action):
        while True:
            pass
"""
SLEEPS = STUCK.replace("            pass", "            import time; time.sleep(10 ** 6)")
LIMIT_S = 600.0


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - neither engine nor pool has an event for it
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("source", [STUCK, SLEEPS], ids=["while-true", "sleeps"])
def test_the_workers_of_a_cut_task_are_killed_and_its_tokens_are_counted(source: str) -> None:
    policy = SandboxPolicy(num_workers=2, spares=1, wall_s_per_call=LIMIT_S, cpu_s_per_call=LIMIT_S)
    task = PlayTask(
        task_id="p",
        group_id="g",
        environment_id="e",
        source=source,
        hint=None,
        hint_mode="none",
        arm="no_hint",
        seeds=[1, 2],
        min_version=0,
        max_turns=1,
        max_new_tokens=10,
        temperature=1.0,
        purpose="train",
        seed=1,
    )

    async def cut() -> tuple[list[EpisodeResult], int, float]:
        sent: list[EpisodeResult] = []

        async def send(result: EpisodeResult) -> None:
            sent.append(result)

        async with Pool(policy) as pool:
            engine = ScriptedEngine(lambda prompt, sampling: [*ids("x"), STOP])
            context = GeneratorContext(Config(), Player(engine, FakeTokens(), pool, games))
            await context.gate.open(0)
            playing = asyncio.create_task(run_play(context, task, send))
            await until(lambda: engine.stats()["tokens"] == 4 and pool.stats()["live"] == 2)
            await asyncio.sleep(0.2)
            began_s = time.monotonic()
            playing.cancel()
            await asyncio.wait([playing])
            assert playing.cancelled()
            await until(lambda: pool.stats()["live"] == 0)
            took_s = time.monotonic() - began_s
            return sent, context.counters.cut_tokens["p"], took_s

    sent, tokens, took_s = asyncio.run(asyncio.wait_for(cut(), 120.0))
    assert sent == []
    assert tokens == 2 * 2
    assert took_s < 10.0

"""Golden vector A14: a listed game fails before anything is generated; a hang adds to both sets."""

from __future__ import annotations

import asyncio
import dataclasses

from spade_async.agent.episode import Player
from spade_async.config.schema import Config
from spade_async.designer import games
from spade_async.engine.scripted import ScriptedEngine
from spade_async.generator.blacklist import SKIPPED, Blacklist
from spade_async.generator.context import GeneratorContext
from spade_async.generator.play_task import run_play
from spade_async.transport.messages import EpisodeResult, PlayTask
from spade_async.types import Outcome
from tests.support.fake_jail import FakeJail, Script, bad, value
from tests.support.fake_tokens import STOP, FakeTokens, ids

PLAY = PlayTask(
    task_id="p-1", group_id="g", environment_id="e", source="class AEnv: pass", hint=None,
    hint_mode="environment", arm="no_hint", seeds=[3, 4, 5, 6], min_version=0, max_turns=2,
    max_new_tokens=10, temperature=1.0, purpose="train", seed=6,
)  # fmt: skip
HANGS = Script(step=[bad(Outcome.TIMED_OUT)])
FINE = Script(step=[value("", 1.0, end=True)])


def run(
    script: Script, *tasks: PlayTask, listed: bool = True, newer_before_last: bool = False
) -> tuple[list[list[EpisodeResult]], FakeJail, Blacklist]:
    """The results of each task, in order of their seeds."""
    jail, blacklist = FakeJail(script), Blacklist()

    async def play() -> list[list[EpisodeResult]]:
        engine = ScriptedEngine([[*ids("a"), STOP]])
        player = Player(engine, FakeTokens(), jail, games, is_reference=True)
        context = GeneratorContext(Config(), player, blacklist=blacklist if listed else None)
        await context.gate.open(0)
        found = []
        for number, task in enumerate(tasks):
            if newer_before_last and number == len(tasks) - 1:
                await context.gate.open(1)
            results: list[EpisodeResult] = []

            async def send(result: EpisodeResult, into: list[EpisodeResult] = results) -> None:
                into.append(result)

            await run_play(context, task, send)
            found.append(sorted(results, key=lambda r: r.index))
        return found

    return asyncio.run(play()), jail, blacklist


def test_after_a_hanging_canary_the_other_plays_fail_before_anything_is_generated() -> None:
    (results,), jail, blacklist = run(HANGS, PLAY)
    assert len(jail.opened) == 1
    assert results[0].missing_reason == "environment: timed_out in step 1"
    for result in results[1:]:
        assert (result.missing_reason, result.outcome) == (SKIPPED, "timed_out")
        assert len(result.token_ids) == 0
    assert (len(blacklist), blacklist.num_skipped) == (1, 3)
    # The other set, of designs that are charged with a hang, goes by this reason.
    assert SKIPPED.startswith(f"environment: {Outcome.TIMED_OUT}")


def test_the_hinted_arm_of_a_listed_environment_is_skipped_whole() -> None:
    hinted = dataclasses.replace(PLAY, task_id="p-2", arm="with_hint", purpose="measure")
    (_, results), jail, _ = run(HANGS, PLAY, hinted)
    assert [r.missing_reason for r in results] == [SKIPPED] * 4
    assert len(jail.opened) == 1


def test_another_environment_and_newer_weights_are_played() -> None:
    other = dataclasses.replace(PLAY, environment_id="other")
    assert len(run(HANGS, PLAY, other)[1].opened) == 2
    assert len(run(HANGS, PLAY, PLAY, newer_before_last=True)[1].opened) == 2


def test_an_environment_that_does_not_hang_is_played_whole() -> None:
    (results,), jail, blacklist = run(FINE, PLAY)
    assert [r.episode_return for r in results] == [1.0] * 4
    assert (len(jail.opened), len(blacklist)) == (4, 0)


def test_without_compatibility_nothing_is_listed() -> None:
    (results,), jail, blacklist = run(HANGS, PLAY, listed=False)
    assert {r.missing_reason for r in results} == {"environment: timed_out in step 1"}
    assert (len(jail.opened), len(blacklist)) == (4, 0)

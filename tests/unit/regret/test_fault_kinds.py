"""Every kind of fault, in either arm: the pair leaves the regret, with a reason, never a number."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from spade_async.agent.episode import Play, Player, PlayLimits, play_episode
from spade_async.designer import games
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import GenerationError, SandboxError
from spade_async.regret import estimate
from spade_async.types import Arm, Episode, Outcome, RegretEstimate
from tests.support.fake_jail import FakeJail, Script, bad, value
from tests.support.fake_tokens import STOP, FakeTokens, ids

LIMITS = PlayLimits(max_turns=2, max_new_tokens=50, max_context_tokens=4096, temperature=1.0)
FAULTS = [outcome for outcome in Outcome if outcome is not Outcome.FINISHED]
BROKEN = 11
"""The seed whose episode fails in one arm."""


def good(seed: int, arm: Arm) -> Script:
    """Solved with the hint on every seed, without it on odd ones but 11."""
    won = arm is Arm.WITH_HINT or (seed % 2 == 1 and seed != BROKEN)
    return Script(step=[value("over", float(won), end=True)])


def pairs(
    arm: Arm,
    break_it: Callable[[FakeJail, Script], Script],
    *,
    engine: Exception | None = None,
    limits: PlayLimits = LIMITS,
) -> tuple[list[tuple[float | None, float | None]], Episode]:
    """Four seeds in both arms, of which seed 11 fails in `arm`; and the episode that failed."""
    failed: list[Episode] = []

    async def one(seed: int, played_arm: Arm) -> Episode:
        script, jail = good(seed, played_arm), FakeJail()
        is_broken = seed == BROKEN and played_arm is arm
        if is_broken:
            script = break_it(jail, script)
        jail._script = script

        def reply(prompt: list[int], sampling: object) -> list[int]:
            if is_broken and engine is not None:
                raise engine
            return [*ids("x"), STOP]

        player = Player(ScriptedEngine(reply), FakeTokens(), jail, games)
        play = Play("e", "class AEnv: pass", "environment", None, played_arm, seed, 1)
        episode = (await play_episode(player, play, limits if is_broken else LIMITS)).episode
        assert jail.live == 0
        if is_broken:
            failed.append(episode)
        return episode

    async def all_of_them() -> list[tuple[float | None, float | None]]:
        found = []
        for seed in (9, 10, BROKEN, 12):
            with_hint, without = await one(seed, Arm.WITH_HINT), await one(seed, Arm.NO_HINT)
            found.append((with_hint.episode_return, without.episode_return))
        return found

    return asyncio.run(all_of_them()), failed[0]


def check(found: list[tuple[float | None, float | None]], episode: Episode, arm: Arm) -> None:
    """The other three seeds make the regret: (1 - 1 + 1 - 0 + 1 - 0) / 3 = 2/3, error 1/3."""
    assert episode.episode_return is None
    assert episode.trace is None
    with_hint, without = found[2]
    assert (with_hint if arm is Arm.WITH_HINT else without) is None
    # The other episode of the pair is there, and may be trained.
    assert (without if arm is Arm.WITH_HINT else with_hint) is not None
    regret = estimate(found, leak_share=0.0, mastered_at=0.9, out_of_reach_at=0.1)
    assert isinstance(regret, RegretEstimate)
    assert regret.regret == pytest.approx(2 / 3)
    assert regret.standard_error == pytest.approx(math.sqrt((2 / 9 + 1 / 9) / 3))
    assert (regret.mean_with_hint, regret.mean_no_hint) == (1.0, pytest.approx(1 / 3))
    assert (regret.num_pairs, regret.num_played) == (3, 4)


@pytest.mark.parametrize("arm", list(Arm))
@pytest.mark.parametrize("outcome", FAULTS, ids=str)
@pytest.mark.parametrize("call", ["load", "reset", "step"])
def test_a_program_that_fails_a_call_in_one_arm(call: str, outcome: Outcome, arm: Arm) -> None:
    reply = bad(outcome)
    change = {call: [reply] if call == "step" else reply}
    found, episode = pairs(arm, lambda _, script: replace(script, **change))
    check(found, episode, arm)
    where = "step 1" if call == "step" else call
    assert episode.missing_reason == f"environment: {outcome.value} in {where}"


@pytest.mark.parametrize("outcome", FAULTS, ids=str)
def test_a_hint_that_fails_is_missing_in_the_arm_that_shows_it(outcome: Outcome) -> None:
    found, episode = pairs(Arm.WITH_HINT, lambda _, script: replace(script, hint=bad(outcome)))
    check(found, episode, Arm.WITH_HINT)
    assert episode.missing_reason == f"environment: {outcome.value} in hint"


@pytest.mark.parametrize("arm", list(Arm))
@pytest.mark.parametrize("reward", [math.nan, math.inf, None])
def test_a_reward_that_is_no_number(reward: float | None, arm: Arm) -> None:
    found, episode = pairs(
        arm, lambda _, script: replace(script, step=[value("over", reward, end=True)])
    )
    check(found, episode, arm)
    assert str(episode.missing_reason).startswith("environment: bad_value in step 1")


@pytest.mark.parametrize("arm", list(Arm))
def test_a_prompt_that_does_not_fit(arm: Arm) -> None:
    limits = replace(LIMITS, max_context_tokens=20)
    found, episode = pairs(arm, lambda _, script: script, limits=limits)
    check(found, episode, arm)
    assert str(episode.missing_reason).startswith("environment: the first prompt")


@pytest.mark.parametrize("arm", list(Arm))
def test_our_own_faults(arm: Arm) -> None:
    def no_jail(jail: FakeJail, script: Script) -> Script:
        jail.fault = SandboxError("the broker is dead")
        return script

    found, episode = pairs(arm, no_jail)
    check(found, episode, arm)
    assert episode.missing_reason == "ours: SandboxError: the broker is dead"
    found, episode = pairs(arm, lambda _, script: script, engine=GenerationError("no room"))
    check(found, episode, arm)
    assert episode.missing_reason == "ours: GenerationError: no room"

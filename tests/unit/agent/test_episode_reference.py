"""Episodes by the reference's rules: whose loss a fault is, and what a cut reply does."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.agent.episode import Play, Played, Player, PlayLimits, play_episode
from spade_async.designer import games
from spade_async.engine.scripted import ScriptedEngine
from spade_async.types import Arm, Outcome, PolicyVersion
from tests.support.fake_jail import FakeJail, Script, bad, value
from tests.support.fake_tokens import STOP, FakeTokens, ids

LIMITS = PlayLimits(max_turns=3, max_new_tokens=50, max_context_tokens=4096, temperature=1.0)
ANSWER = [[*ids("a"), STOP]]


def play(
    script: Script,
    *,
    is_reference: bool = True,
    replies: list[list[int]] = ANSWER,
    unseeded: bool = False,
) -> tuple[Played, FakeJail]:
    jail = FakeJail(script)
    engine = ScriptedEngine(replies, version=PolicyVersion(1, 2))
    player = Player(engine, FakeTokens(), jail, games, is_reference=is_reference)
    instance = Play("e", "", "environment", None, Arm.NO_HINT, 7, 99, is_unseeded=unseeded)
    return asyncio.run(play_episode(player, instance, LIMITS)), jail


@pytest.mark.parametrize("outcome", [Outcome.EXCEPTION, Outcome.BAD_VALUE])
def test_a_fault_in_step_is_the_loss_of_the_agent_and_is_trained(outcome: Outcome) -> None:
    script = Script(step=[bad(outcome)])
    episode = play(script)[0].episode
    assert (episode.episode_return, episode.missing_reason) == (-1.0, None)
    assert episode.outcome is outcome
    assert episode.trace is not None
    assert episode.trace.num_trained_tokens == len(ANSWER[0])
    ours = play(script, is_reference=False)[0].episode
    assert (ours.episode_return, ours.trace) == (None, None)
    assert ours.missing_reason == f"environment: {outcome} in step 1"


@pytest.mark.parametrize("outcome", [Outcome.TIMED_OUT, Outcome.OVER_MEMORY])
def test_what_ends_the_worker_has_no_return(outcome: Outcome) -> None:
    episode = play(Script(step=[bad(outcome)]))[0].episode
    assert (episode.episode_return, episode.missing_reason) == (
        None, f"environment: {outcome} in step 1"
    )  # fmt: skip


def test_a_fault_in_reset_is_shown_and_play_goes_on() -> None:
    script = Script(reset=bad(Outcome.EXCEPTION, "KeyError: 'x'"), step=[value("", 1.0, end=True)])
    played, jail = play(script)
    assert played.episode.observation == "The game reports an error: KeyError: 'x'"
    assert played.episode.episode_return == 1.0
    assert "step a" in jail.opened[0].calls
    assert play(script, is_reference=False)[0].episode.episode_return is None


def test_an_unseeded_play_resets_without_the_seed() -> None:
    assert play(Script(), unseeded=True)[1].opened[0].calls[0] == "reset without a seed"
    assert play(Script())[1].opened[0].calls[0] == "reset"


@pytest.mark.parametrize("is_reference", [False, True])
def test_the_environment_is_not_stepped_after_a_cut_reply(is_reference: bool) -> None:
    """Golden vector A14: no end token is finish reason "length", and no step follows."""
    played, jail = play(Script(), is_reference=is_reference, replies=[ids("a" * 80)])
    assert (played.episode.episode_return, played.episode.detail) == (0.0, "reply was cut")
    assert not [call for call in jail.opened[0].calls if call.startswith("step")]

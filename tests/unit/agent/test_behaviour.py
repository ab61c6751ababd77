"""How an agent acts over several turns: closed values of scripted episodes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from spade_async.agent.behaviour import Behaviour, of_episode, of_record, summed
from spade_async.agent.episode import Play, Player, PlayLimits, play_episode
from spade_async.designer import games
from spade_async.engine.scripted import ScriptedEngine
from spade_async.types import Arm, PolicyVersion
from tests.support.fake_jail import FakeJail, Script, value
from tests.support.fake_tokens import STOP, FakeTokens, ids

MASK = np.array([0, 0, 1, 1, 1, 0, 1, 1], np.uint8)


def turn(action: str, observation: str, reward: float = 0.0) -> dict[str, object]:
    return {"action": action, "observation": observation, "reward": reward}


def seen(*turns: dict[str, object], episode_return: float = 1.0) -> Behaviour:
    found = of_episode(turns, MASK, episode_return)
    assert found is not None
    return found


def used(*turns: dict[str, object]) -> tuple[int, int]:
    found = seen(*turns)
    return found.used, found.answered


def test_tokens_before_the_first_action_are_those_of_the_first_reply() -> None:
    assert seen(turn("1", "over")).first_action_tokens == 3
    whole = of_episode([turn("1", "over")], np.ones(5, np.uint8), 1.0)
    assert whole is not None
    assert whole.first_action_tokens == 5


def test_bisection_uses_every_answer() -> None:
    assert used(
        turn(r"\boxed{8}", "Higher."), turn(r"\boxed{12}", "Lower."), turn(r"\boxed{10}", "Found.")
    ) == (2, 2)


def test_a_guess_that_contradicts_an_earlier_bound_uses_nothing() -> None:
    # 7 is not above 8; 12 was too high, so 13 is not below it though "higher" was said of 7.
    assert used(
        turn("8", "Higher."), turn("7", "Higher."), turn("12", "Too high!"), turn("13", "Lower.")
    ) == (1, 3)


def test_the_same_action_again_uses_nothing_however_it_is_written() -> None:
    assert used(turn(r"\boxed{ Left }", "go on"), turn("left", "go on"), turn("right", "")) == (
        1,
        2,
    )


def test_an_action_that_was_rejected_before_uses_nothing() -> None:
    found = seen(
        turn("jump", "Invalid action."),
        turn("left", "a wall"),
        turn("jump", "Invalid action.", -0.1),
        turn("right", "over", 1.0),
    )
    assert (found.used, found.answered) == (2, 3)
    # Both jumps are followed by an action that is taken.
    assert (found.rejected, found.recovered) == (2, 2)
    assert (found.rejected_episodes, found.rejected_returns) == (1, 1.0)


@pytest.mark.parametrize(
    ("answer", "up", "down"),
    [
        ("Too low. Guess again, 3 more guesses.", 1, 0),
        ("The number is smaller.", 0, 1),
        ("Your guess is lower than the number.", 1, 0),
        ("Your guess was greater.", 0, 1),
        ("It is higher or lower.", 1, 1),
        ("No.", 1, 1),
    ],
)
def test_what_an_answer_says_of_a_number(answer: str, up: int, down: int) -> None:
    assert used(turn("5", answer), turn("6", "")) == (up, 1)
    assert used(turn("5", answer), turn("4", "")) == (down, 1)


def test_a_negative_reward_is_a_rejection_and_a_repeated_one_is_no_recovery() -> None:
    found = seen(turn("a", "?", -0.1), turn("b", "?", -0.1), turn("c", "!"), episode_return=0.0)
    assert (found.rejected, found.recovered) == (2, 1)
    # A rejected last action is followed by nothing.
    assert seen(turn("a", "!"), turn("b", "illegal")).rejected == 0


def test_what_did_not_happen_is_none_and_a_missing_episode_counts_for_nothing() -> None:
    assert of_episode([], MASK, 0.0) is None
    assert of_episode([turn("a", "?")], MASK, None) is None
    assert summed([]).figures() == dict.fromkeys(Behaviour().figures())
    alone = seen(turn("a", "over")).figures()
    assert alone["behaviour/turns"] == 1.0
    assert alone["behaviour/feedback_used_share"] is None
    assert alone["behaviour/recovery_share"] is None


def test_sums_are_over_episodes_and_go_through_json() -> None:
    one = seen(turn("8", "Higher."), turn("9", "Found."))
    two = seen(turn("8", "Higher."), turn("3", "Higher."), turn("9", "Found."), episode_return=0.0)
    figures = summed([one, of_record(json.loads(json.dumps(asdict(two))))]).figures()
    assert figures["behaviour/turns"] == 2.5
    # 9 after "higher" in both, not 3.
    assert figures["behaviour/feedback_used_share"] == pytest.approx(2 / 3)
    assert figures["behaviour/tokens_before_action"] == 3.0


def test_a_played_episode_gives_the_counts_that_its_replies_say() -> None:
    """Through the real episode loop: scripted replies, scripted answers."""
    script = Script(
        step=[
            value("That is no number.", -0.1),
            value("Higher.", 0.0),
            value("Found.", 1.0, end=True),
        ]
    )
    replies = [[*ids(reply), STOP] for reply in ("think of \\boxed{x}", "\\boxed{8}", "\\boxed{9}")]

    async def run() -> Behaviour | None:
        engine = ScriptedEngine(replies, version=PolicyVersion(1, 2))
        player = Player(engine, FakeTokens(), FakeJail(script), games)
        play = Play("e", "class AEnv: pass", "none", None, Arm.NO_HINT, 7, 99)
        limits = PlayLimits(
            max_turns=3, max_new_tokens=50, max_context_tokens=4096, temperature=1.0
        )
        episode = (await play_episode(player, play, limits)).episode
        assert episode.trace is not None
        turns = [asdict(seen) for seen in episode.turns]
        return of_episode(turns, episode.trace.loss_mask, episode.episode_return)

    found = asyncio.run(run())
    first = len(replies[0])
    assert found == Behaviour(
        episodes=1, turns=3, first_action_tokens=first, answered=2, used=2, rejected=1,
        recovered=1, rejected_episodes=1, rejected_returns=1.0,
    )  # fmt: skip


def test_the_find_number_environment_answers_in_words_that_are_understood() -> None:
    text = Path(__file__).parents[3] / "configs" / "environments" / "find_number.py"
    source = text.read_text()
    for words in ("That is no number.", "Higher.", "Lower."):
        assert f'"{words}"' in source
    assert seen(turn("x", "That is no number."), turn("5", "Lower.")).rejected == 1

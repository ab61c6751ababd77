"""Hints of the policy, and the check that a hint is not the answer."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.designer.hint import candidates, clean_hint, leak_share
from spade_async.errors import SandboxError
from spade_async.types import Outcome, Reply
from tests.support.fake_jail import FakeJail, Script, bad, value


def wins_with(*answers: str):
    def step(action: str) -> Reply:
        return value("over", float(action in answers), end=True)

    return step


def share(jail: FakeJail, hint: str | None, source: str = "x", seeds: int = 4) -> float:
    return asyncio.run(leak_share(jail, source, hint, list(range(seeds))))


def test_the_hint_and_its_last_word_are_tried_with_and_without_marks() -> None:
    assert candidates("The answer is 42.", "x") == ["The answer is 42.", "42.", "42"]
    assert candidates("42", "x") == ["42"]
    assert candidates("42", r"boxed")[0] == r"\boxed{42}"
    assert candidates("  ", "x") == []


@pytest.mark.parametrize("hint", ["7", "The answer is 7", "it is '7'."])
def test_a_hint_that_is_the_answer_leaks_everywhere(hint: str) -> None:
    assert share(FakeJail(Script(step=wins_with("7"))), hint) == 1.0


def test_a_hint_that_is_not_the_answer_leaks_nowhere() -> None:
    assert share(FakeJail(Script(step=wins_with("7"))), "begin with the tens") == 0.0


def test_the_share_is_over_instances() -> None:
    jail = FakeJail(lambda number, seed: Script(step=wins_with("7" if seed == 1 else "8")))
    assert share(jail, "7") == 0.25


def test_an_instance_gives_its_own_hint() -> None:
    def script(number: int, seed: int) -> Script:
        return Script(hint=value(f"say {seed}"), step=wins_with(str(seed)))

    assert share(FakeJail(script), None) == 1.0


def test_an_instance_whose_hint_cannot_be_read_is_not_paid() -> None:
    assert share(FakeJail(Script(hint=bad(Outcome.EXCEPTION))), None) == 1.0
    assert share(FakeJail(Script(reset=bad(Outcome.EXCEPTION))), None) == 1.0


def test_a_negative_or_unfinished_reward_is_no_leak() -> None:
    lost = FakeJail(Script(step=[value("over", -1.0, end=True)]))
    going_on = FakeJail(Script(step=[value("more", 1.0)]))
    broken = FakeJail(Script(step=[bad(Outcome.EXCEPTION)]))
    assert [share(jail, "7") for jail in (lost, going_on, broken)] == [0.0, 0.0, 0.0]


def test_without_seeds_the_check_is_off() -> None:
    jail = FakeJail()
    assert share(jail, "7", seeds=0) == 0.0
    assert jail.opened == []


def test_a_fault_of_the_jail_goes_up() -> None:
    jail = FakeJail()
    jail.fault = SandboxError("gone")
    with pytest.raises(SandboxError):
        share(jail, "7")


def test_a_policy_hint_has_no_end_tokens_fences_or_thoughts() -> None:
    assert clean_hint("<think>it is 7</think> Add them.<|im_end|>") == "Add them."
    assert clean_hint('```json\n{"hint": "Add them."}\n```') == "Add them."
    assert clean_hint("```\nAdd them.\n```") == "Add them."
    assert clean_hint("Add\n them.</s>") == "Add them."
    assert clean_hint("<|im_end|>") is None


def test_a_policy_hint_has_at_most_a_hundred_words() -> None:
    hint = clean_hint("word " * 500)
    assert hint is not None
    assert len(hint.split()) == 100

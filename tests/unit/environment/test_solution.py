"""What a solution's text stands for, and what can never be an action of a call."""

from __future__ import annotations

import json

import pytest

from spade_async.designer.hint import candidates
from spade_async.environment.solution import MOST_CHARS, Reading, read_solution
from spade_async.sandbox_policy import SandboxPolicy, check_text


def test_a_plan_an_answer_and_prose_are_read() -> None:
    assert read_solution("42", single_turn=True) == Reading(((r"\boxed{42}",), ("42",)), True)
    assert read_solution('["a", "b"]', single_turn=False).ways[0] == (r"\boxed{a}", r"\boxed{b}")
    assert not read_solution("Add the two numbers and say the sum", single_turn=True).is_certain


@pytest.mark.parametrize(
    "text",
    ["\ud800", r'["\ud800", "a"]', "up\n\udfff", r"\boxed{" + "\ud800}", "x" * (MOST_CHARS + 1)],
)
@pytest.mark.parametrize("single_turn", [True, False])
def test_what_no_call_takes_is_not_played(text: str, single_turn: bool) -> None:
    # Such an action was refused by the pool as a fault of ours, which ended the generator.
    reading = read_solution(text, single_turn=single_turn)
    for way in reading.ways:
        for action in way:
            check_text("action", action, SandboxPolicy().action_bytes)
    if text[0] != "[" or not single_turn:
        assert reading == Reading((), False)


def test_a_hint_that_is_longer_than_a_call_takes_is_tried_by_its_last_word() -> None:
    hint = "é" * (64 << 10) + " 42"
    found = candidates(hint, "boxed")
    assert found == [r"\boxed{42}", "42"]
    assert json.dumps(candidates("é" * (64 << 10), "x")) == "[]"

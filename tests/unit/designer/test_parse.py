"""Programs and boxed actions out of chat replies."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.designer import parse

PROGRAM = "class AEnv:\n    pass\n"


def test_the_fence_that_defines_an_environment_is_taken() -> None:
    reply = f"An idea:\n```python\nx = 1\n```\nThe game:\n```python\n{PROGRAM}```\nDone."
    assert parse.program(reply) == PROGRAM


def test_a_draft_in_the_thoughts_is_not_taken() -> None:
    reply = f"<think>```python\nclass DraftEnv:\n    pass\n```</think>```python\n{PROGRAM}```"
    assert parse.program(reply) == PROGRAM


def test_thoughts_that_never_end_hold_no_program_and_no_action() -> None:
    assert parse.program(f"<think>say\n```python\n{PROGRAM}```") is None
    assert parse.action(r"<think>\boxed{1}") == ""


def test_an_open_fence_runs_to_the_end() -> None:
    assert parse.program(f"```python\n{PROGRAM}") == PROGRAM


def test_other_languages_are_not_programs() -> None:
    assert parse.program("```json\n{}\n```") is None


def test_a_bare_program_is_taken_and_bare_talk_is_not() -> None:
    assert parse.program(PROGRAM) == PROGRAM
    assert parse.program("I would rather not.") is None


def test_a_fence_without_environment_is_left_to_the_jail_to_refuse() -> None:
    assert parse.program("```python\nx = 1\n```") == "x = 1\n"


def test_line_ends_and_surrogates_are_tidied() -> None:
    assert parse.program("```python\r\nclass AEnv:\r\n    x = '\ud800'\r\n```") == (
        "class AEnv:\n    x = '?'\n"
    )


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed{{42}}", "42"),
        (r"\boxed{{{x + 1}}}", "x + 1"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"e.g. \boxed{1}; my move: \boxed{2}", "2"),
        (r"\boxed{{a}+{b}}", "{a}+{b}"),
        (r"\boxed{5} and then \boxed{", "5"),
        (r"\boxed{}", None),
        (r"\boxed{open", None),
        ("none", None),
        ("", None),
    ],
)
def test_boxed_text(reply: str, content: str | None) -> None:
    assert parse.boxed(reply) == content


def test_an_action_is_boxed_again_or_the_bare_reply() -> None:
    assert parse.action(r"I say \boxed{7}.") == r"\boxed{7}"
    assert parse.action("  raw  ") == "raw"
    assert parse.action(r"<think>\boxed{1}</think>  up ") == "up"


@given(st.text(alphabet="\\boxed{}` \npython", max_size=300))
def test_parsing_never_fails(text: str) -> None:
    parse.boxed(text)
    parse.action(text)
    parse.program(text)


@pytest.mark.parametrize("piece", [r"\boxed{", "```python\n", "```", "{", "\\"])
def test_hostile_replies_are_bounded(piece: str) -> None:
    # A quadratic parser would run into the timeout of the test.
    text = piece * 50_000
    parse.boxed(text)
    parse.program(text)


@pytest.mark.parametrize("tail", [" ", "a", "`", "\t-"])
def test_an_open_fence_line_is_read_once(tail: str) -> None:
    # Its splits were tried one by one: 8 s of CPU for 128 KiB; read once it takes 2 ms.
    began = time.process_time()
    assert parse.program("```" + tail * (1 << 20)) is None
    assert time.process_time() - began < 1.0
    assert parse.program(f"  ```  python3  title{tail}\n{PROGRAM}") == PROGRAM

"""Replies as the reference reads them: its golden vectors (A1) and the errata."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_async.designer import games, parse, parse_reference
from spade_async.designer.compat import with_compat
from spade_async.nano import domain as nano

PROGRAM = "class AEnv:\n    pass\n"


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed{{42}}", "42"),
        (r"\boxed{{{x + 1}}}", "x + 1"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("no box", None),
        ("", None),
        # Errata.
        (r"\boxed{}", ""),
        (r"\boxed{{a}+{b}}", "a}+{b"),
        (r"\boxed{\frac{1}{2}} or \boxed{3}", "3"),
        # The first flat box wins, which ours does not copy.
        (r"e.g. \boxed{1}; my move: \boxed{2}", "1"),
        # Balanced text is that of the last box.
        (r"\boxed{\sqrt{2}} then \boxed{\sqrt{3}}", r"\sqrt{3}"),
        (r"\boxed{\sqrt{2}", None),
    ],
)
def test_golden_boxes(reply: str, content: str | None) -> None:
    assert parse_reference.boxed(reply) == content


def test_golden_actions() -> None:
    assert parse_reference.action(r"I say \boxed{7}, finally") == r"\boxed{7}"
    assert parse_reference.action("  raw  ", "tool_call") == "raw"
    assert parse_reference.action("  raw  ", "command") == "raw"
    assert parse_reference.action(r" \boxed{7} ", "command") == r"\boxed{7}"
    assert parse_reference.action("  raw  ") == "raw"
    assert parse_reference.action(r"<think>\boxed{1}</think> \boxed{2}") == r"\boxed{2}"


def test_golden_tags() -> None:
    assert parse_reference.tagged("so <answer>done</answer>") == "ANSWER: done"
    assert parse_reference.tagged("<command>pwd</command>") == "pwd"
    assert parse_reference.tagged("<answer>open") is None


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (f"```python\nx = 1\n```\n```python\n{PROGRAM}```", "x = 1\n"),
        (f"<think>```python\nx = 1\n```</think>```python\n{PROGRAM}```", "x = 1\n"),
        (f"```\n{PROGRAM}```", f"```\n{PROGRAM}```\n"),
        (f"```python\n{PROGRAM}", f"```python\n{PROGRAM}"),
        ("Sorry.", "Sorry.\n"),
        ("```python\n```", None),
        ("  \n", None),
    ],
)
def test_the_first_python_fence_else_the_whole_reply(reply: str, text: str | None) -> None:
    assert parse_reference.program(reply) == text


def test_compat_changes_how_games_are_read_and_nothing_of_other_domains() -> None:
    reply = r"e.g. \boxed{1}; my move: \boxed{2}"
    assert with_compat(games, "off").parse_action(reply) == r"\boxed{2}"
    wrapped = with_compat(games, "reference")
    assert wrapped.parse_action(reply) == r"\boxed{1}"
    assert wrapped.parse_program("Sorry.") == "Sorry.\n"
    assert wrapped.labels("x") == {}
    assert wrapped.hint_messages("x") == games.hint_messages("x")
    assert with_compat(nano, "reference") is nano


TEXTS = st.lists(
    st.sampled_from(
        ["\\boxed{", "{", "}", "```", "python", "\n", "<think>", "</think>", "class AEnv:", " ",
         "7", "<answer>", "</answer>", "é", "\ud800", "\\", "\r\n", "\0"]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@settings(deadline=None)
@given(st.one_of(TEXTS, st.text(max_size=300)))
def test_any_text_gives_bounded_values_that_can_be_sent(text: str) -> None:
    for rules in (parse, parse_reference):
        found = rules.program(text)
        assert found is None or (found.strip() and found.encode())
        content = rules.boxed(text)
        assert content is None or "\\boxed{" + content + "}" in rules.action(text) or "<" in text
        assert len(rules.action(text)) <= 4010
    # Our rule for the box: an empty one is none.
    assert parse.boxed(text) != ""


@pytest.mark.parametrize(
    "piece", [r"\boxed{", r"\boxed{{", "```python\n", "\n```", "{", "<answer>"]
)
def test_hostile_replies_take_linear_time(piece: str) -> None:
    # A quadratic parser would run into the timeout of the test.
    text = piece * 50_000
    parse_reference.boxed(text)
    parse_reference.program(text)
    parse_reference.tagged(text)

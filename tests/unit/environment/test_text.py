"""Untrusted text is bounded and cannot control a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spade_async.environment.text import clean, one_line


def test_control_characters_bidi_marks_and_surrogates_go() -> None:
    assert clean("a\x1b[31mb\u202ec\ud800d\te\n") == "a[31mbcd\te\n"


def test_a_long_text_is_cut_to_the_limit() -> None:
    assert clean("x" * 1000) == "x" * 399 + "…"
    assert clean("x" * 400) == "x" * 400


def test_one_line_has_one_line() -> None:
    assert one_line(" a\n\n b\tc ") == "a b c"


@given(st.text(), st.integers(1, 50))
def test_clean_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(clean(text, limit)) <= limit

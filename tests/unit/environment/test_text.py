"""Untrusted text is bounded and cannot control a terminal."""

from __future__ import annotations

import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from spade_async.environment.text import clean, one_line


def test_control_characters_bidi_marks_and_surrogates_go() -> None:
    assert clean("a\x1b[31mb\u202ec\ud800d\te\n") == "a[31mbcd\te\n"


def test_no_mark_that_turns_or_hides_a_text_is_left() -> None:
    # Every character that changes the direction of others, the tags, which no one sees, and the
    # marks of an annotation.
    turning = [
        c
        for c in map(chr, range(sys.maxunicode + 1))
        if unicodedata.bidirectional(c) in ("LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI",
                                            "FSI", "PDI")
    ]  # fmt: skip
    hiding = "\u061c\u200e\u200f\ufff9\ufffa\ufffb\U000e0001\U000e0041\U000e007f"
    assert clean("".join(turning) + hiding + "x") == "x"
    # Joiners are letters' own: an emoji of several, a word in Persian.
    assert clean("\U0001f469\u200d\U0001f680") == "\U0001f469\u200d\U0001f680"


def test_a_long_text_is_cut_to_the_limit() -> None:
    assert clean("x" * 1000) == "x" * 399 + "…"
    assert clean("x" * 400) == "x" * 400


def test_one_line_has_one_line() -> None:
    assert one_line(" a\n\n b\tc ") == "a b c"


@given(st.text(), st.integers(1, 50))
def test_clean_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(clean(text, limit)) <= limit

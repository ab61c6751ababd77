"""Hostile frames at each end of the link, with fixed seeds; `python -m benches link_fuzz` for two
million of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from benches.wire.fuzz import ENDS
from benches.wire.mutations import REASONS

FRAMES = {"decoder": 60_000, "coordinator": 12_000, "generator": 8_000, "learner": 8_000}
MORE_REASONS = {
    "coordinator": {"direction", "identity", "unknown_peer", "other_incarnation"},
    "generator": {"direction"},
    "learner": {"direction"},
}
"""What an end refuses that the decoder lets through."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("end", ENDS)
def test_hostile_frames_are_counted_by_reason_and_harm_nobody(end):
    result = ENDS[end](FRAMES[end], 5)
    assert result.faults == []
    assert result.frames >= FRAMES[end]
    assert REASONS <= set(result.refused) <= REASONS | MORE_REASONS.get(end, set())
    counted = result.delivered + result.duplicates + result.control + sum(result.refused.values())
    assert counted == result.frames
    if end != "decoder":
        assert result.duplicates > 100
        assert result.delivered > 100
    assert result.grown_bytes < 96 << 20

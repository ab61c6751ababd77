"""Traces that a batch need not read again: the same as the stored ones, bounded, and no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spade_async.ledger import Ledger
from spade_async.ledger.traces import RecentTraces
from spade_async.types import TokenTrace
from tests.support.ledger_rows import group, sample, trace


def equal(one: TokenTrace | None, two: TokenTrace) -> bool:
    names = ("token_ids", "loss_mask", "generator_logprobs", "versions")
    return one is not None and all(
        np.array_equal(getattr(one, n), getattr(two, n)) for n in names
    )  # fmt: skip


def test_first_reading_and_every_later_one_give_what_was_written(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l", create=True, config_digest="c") as ledger:
        with ledger.transaction():
            ledger.add_group(group("g"))
            ledger.add_sample(sample("s", "g"), trace(7))
        assert equal(ledger.trace("s"), trace(7))
        assert equal(ledger.trace("s"), trace(7))


def test_trace_that_was_rolled_back_is_not_given(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l", create=True, config_digest="c") as ledger:
        with pytest.raises(ZeroDivisionError):
            _fail_after_writing(ledger)
        assert ledger.trace("s") is None


def _fail_after_writing(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.add_group(group("g"))
        ledger.add_sample(sample("s", "g"), trace(7))
        raise ZeroDivisionError


def test_same_sample_again_does_not_replace_its_trace(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l", create=True, config_digest="c") as ledger:
        with ledger.transaction():
            ledger.add_group(group("g"))
            assert ledger.add_sample(sample("s", "g"), trace(7))
            assert not ledger.add_sample(sample("s", "g"), trace(9))
        assert equal(ledger.trace("s"), trace(7))


def test_oldest_leave_when_it_is_full() -> None:
    # A trace of 1000 tokens has 4 + 1 + 4 + 8 bytes per token, and 1 KiB is counted for the record.
    recent = RecentTraces(most_bytes=2 * (17_000 + 1024))
    for name in "abc":
        recent.put(name, trace(1000))
    assert recent.take("a") is None
    assert equal(recent.take("b"), trace(1000))
    assert recent.take("b") is None
    recent.put("d", trace(1000))
    assert equal(recent.take("c"), trace(1000))

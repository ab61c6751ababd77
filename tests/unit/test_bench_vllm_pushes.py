"""The bench of pushes into vLLM: which times count as a gap, and what it says without vLLM."""

from __future__ import annotations

import asyncio

import pytest

from benches.weights import vllm_pushes
from benches.weights.vllm_pushes import Gaps, lines, pushes
from spade_async.engine.vllm.installed import VllmInstall

pytestmark = pytest.mark.timeout(60)


def test_a_gap_is_the_longest_wait_of_one_request_between_two_of_its_tokens() -> None:
    gaps = Gaps()
    gaps.look({1: 3, 2: 5}, 10.0)
    gaps.look({1: 4, 2: 5}, 11.0)
    assert gaps.longest_s == pytest.approx(1.0)
    gaps.look({1: 5, 2: 6}, 12.5)  # request 2 waited 2.5 s
    assert gaps.longest_s == pytest.approx(2.5)


def test_waiting_for_the_first_token_is_no_gap_and_nor_is_what_ended_before() -> None:
    gaps = Gaps()
    gaps.look({1: 0}, 1.0)
    gaps.look({1: 1}, 9.0)
    assert gaps.longest_s == 0.0
    gaps.look({}, 10.0)
    gaps.look({1: 4}, 30.0)  # another request in the place of the first
    assert gaps.longest_s == 0.0


def test_a_gap_that_runs_when_a_push_begins_counts_whole() -> None:
    gaps = Gaps()
    gaps.look({1: 3}, 10.0)
    gaps.begin()
    gaps.look({1: 4}, 14.0)
    assert gaps.longest_s == pytest.approx(4.0)


def test_without_vllm_one_line_says_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = VllmInstall(None, False, False, "vLLM is not installed: pip install it")
    monkeypatch.setattr(vllm_pushes, "look", lambda: absent)
    result = asyncio.run(pushes(quick=True, memory=None, copy_s=lambda num_bytes: 1.0))
    assert lines(result) == [
        "left out: vLLM, 1 M, 135 M, 500 M weights: vLLM is not installed: pip install it"
    ]

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_async.grpo.plan import PASS_TOKENS, padded_tokens, plan_micro_batches


@given(
    lengths=st.lists(st.integers(1, 60), max_size=50),
    cap=st.integers(1, 200),
)
@settings(max_examples=200, deadline=None)
def test_no_micro_batch_is_above_the_cap_and_no_sample_is_lost(
    lengths: list[int], cap: int
) -> None:
    plan = plan_micro_batches(lengths, cap)
    assert sorted(i for part in plan for i in part) == list(range(len(lengths)))
    for part in plan:
        padded = len(part) * max(lengths[i] for i in part)
        assert padded <= cap or len(part) == 1


def test_eight_sequences_of_seven_do_not_share_a_cap_of_eight() -> None:
    assert [len(part) for part in plan_micro_batches([7] * 8, 8)] == [1] * 8


def test_equal_lengths_fill_the_cap() -> None:
    assert [len(part) for part in plan_micro_batches([50] * 20, 400)] in ([8, 8, 4], [4, 8, 8])


def test_no_samples_have_no_micro_batches() -> None:
    assert plan_micro_batches([], 100) == []


@given(lengths=st.lists(st.integers(1, 400), min_size=1, max_size=9), cap=st.integers(50, 1500))
@settings(max_examples=60, deadline=None)
def test_the_plan_is_the_cheapest_cut_of_the_sorted_lengths(lengths: list[int], cap: int) -> None:
    def cost(plan: list[list[int]]) -> int:
        return padded_tokens(lengths, plan) + PASS_TOKENS * len(plan)

    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    costs = []
    for number in range(len(lengths)):
        for cuts in itertools.combinations(range(1, len(lengths)), number):
            ends = [0, *cuts, len(lengths)]
            plan = [order[a:b] for a, b in itertools.pairwise(ends)]
            if all(len(p) == 1 or padded_tokens(lengths, [p]) <= cap for p in plan):
                costs.append(cost(plan))
    assert cost(plan_micro_batches(lengths, cap)) == min(costs)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("median", "sigma", "count", "cap"),
    [(300, 0.6, 64, 8192), (100, 0.8, 256, 8192), (600, 1.0, 128, 16384), (300, 0.8, 256, 2048)],
)
def test_at_most_a_twentieth_of_log_normal_lengths_is_padding(
    median: int, sigma: float, count: int, cap: int, seed: int
) -> None:
    drawn = np.random.default_rng(seed).lognormal(np.log(median), sigma, count)
    lengths = np.maximum(1, drawn).astype(int).tolist()
    plan = plan_micro_batches(lengths, cap)
    assert 1.0 - sum(lengths) / padded_tokens(lengths, plan) <= 0.05

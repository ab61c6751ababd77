"""The reference's regret: two means over instances of their own, hinted faults as 0."""

from __future__ import annotations

import math

import pytest

from spade_async.regret import unpaired
from spade_async.types import MissingRegret, RegretClass, RegretEstimate

LIMITS = {"leak_share": 0.0, "mastered_at": 0.9, "out_of_reach_at": 0.1}


def test_regret_is_the_difference_of_the_means_and_its_error_adds_both_variances() -> None:
    found = unpaired([1.0, 1.0, 0.0, 1.0], [0.0, 1.0], **LIMITS)
    assert isinstance(found, RegretEstimate)
    assert (found.mean_with_hint, found.mean_no_hint, found.regret) == (0.75, 0.5, 0.25)
    # Variances with n - 1: 0.25 of four, 0.5 of two.
    assert found.standard_error == pytest.approx(math.sqrt(0.25 / 4 + 0.5 / 2))
    assert (found.num_pairs, found.num_played, found.lower_bound) == (0, 2, None)
    assert found.regret_class is RegretClass.FRONTIER


def test_a_missing_hinted_play_counts_0_and_a_missing_other_one_does_not_count() -> None:
    found = unpaired([1.0, None, None, 1.0], [0.5, None], **LIMITS)
    assert isinstance(found, RegretEstimate)
    assert (found.mean_with_hint, found.mean_no_hint, found.regret) == (0.5, 0.5, 0.0)
    assert found.standard_error is None  # a single return has no spread


def test_without_a_return_of_the_other_arm_there_is_no_estimate() -> None:
    found = unpaired([1.0] * 16, [None] * 8, **LIMITS)
    assert found == MissingRegret("none of 8 plays without hint has a return")


@pytest.mark.parametrize(
    ("hinted", "plain", "expected"),
    [
        ([0.0], [1.0, 1.0], RegretClass.MASTERED),
        ([None], [0.0, 0.0], RegretClass.OUT_OF_REACH),
        ([1.0], [-1.0, 0.0], RegretClass.FRONTIER),
    ],
)
def test_the_class_goes_by_both_means(
    hinted: list[float | None], plain: list[float | None], expected: RegretClass
) -> None:
    found = unpaired(hinted, plain, **LIMITS)
    assert isinstance(found, RegretEstimate)
    assert found.regret_class is expected

"""Appendix A13 of the reference's vectors, as far as our held-out sets have the same figures."""

from __future__ import annotations

import pytest

from spade_async.coordinator.evaluation import success
from spade_async.evals.tables import _share


def test_gpqa_average_over_repeats_is_the_mean_over_all_of_them() -> None:
    # Two problems by eight, one always right: avg@8 is 0.5.
    assert success([1.0] * 8 + [0.0] * 8, 0) == (0.5, 0.5)


def test_livecodebench_pass_at_1_of_one_in_two() -> None:
    assert success([1.0, 0.0], 0) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("passed", "failed", "missing", "clean", "strict"),
    [
        # tau2: two passes of four that were expected, the others never came.
        (2, 0, 2, 1.0, 0.5),
        # An error of the infrastructure stays in the strict denominator.
        (2, 1, 1, 2 / 3, 0.5),
        (2, 2, 0, 0.5, 0.5),
    ],
)
def test_tau2_strict_and_clean(
    passed: int, failed: int, missing: int, clean: float, strict: float
) -> None:
    found = success([1.0] * passed + [0.0] * failed, missing)
    assert found == pytest.approx((clean, strict), abs=1e-12)


def test_nothing_that_came_has_no_mean_and_nothing_expected_no_success() -> None:
    assert success([], 3) == (None, 0.0)
    with pytest.raises(ValueError, match="no episode was expected"):
        success([], 0)


def test_a_share_is_a_percentage_with_one_digit_and_a_missing_one_a_dash() -> None:
    assert _share(0.474) == "47.4%"
    assert _share(None) == "-"

from __future__ import annotations

import pytest

from spade_async.evals.tables import verdict


@pytest.mark.parametrize(
    ("base", "trained", "error", "expected"),
    [
        # The error of the difference is 0.05 * sqrt(2) = 0.0707; twice that is 0.141.
        (0.5, 0.64, 0.05, "within noise"),
        (0.5, 0.65, 0.05, "better"),
        (0.5, 0.35, 0.05, "worse"),
        (0.5, None, 0.05, "-"),
        (None, 0.5, 0.05, "-"),
        (0.5, 0.9, None, "-"),
    ],
)
def test_difference_is_judged_against_two_standard_errors(
    base: float | None, trained: float | None, error: float | None, expected: str
) -> None:
    row = {"base": base, "base_se": error, "trained": trained, "trained_se": error}
    assert verdict(row) == expected


@pytest.mark.parametrize(
    ("difference", "error", "expected"),
    [(0.02, 0.01, "within noise"), (0.021, 0.01, "better"), (-0.021, 0.01, "worse")],
)
def test_pairs_are_judged_by_their_own_error(
    difference: float, error: float, expected: str
) -> None:
    """The errors of both means are five times as large: the instances are the same."""
    row = {"base": 0.5, "base_se": 0.05, "trained": 0.5 + difference, "trained_se": 0.05}
    assert verdict(row) == "within noise"
    assert verdict({**row, "difference": difference, "difference_se": error}) == expected

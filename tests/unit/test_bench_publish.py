"""The arithmetic of the bench of publishing: the line and the longest gap."""

from __future__ import annotations

import random

import pytest

from benches.publish import _longest_gap
from benches.weights.fit import fit


def test_line_through_points_on_a_line_is_that_line() -> None:
    line = fit([2.0 + 0.5 * i for i in range(10)])
    assert line.slope == pytest.approx(0.5)
    assert line.intercept == pytest.approx(2.0)
    assert line.standard_error == pytest.approx(0.0, abs=1e-12)
    assert not line.is_flat


def test_standard_error_is_that_of_least_squares() -> None:
    # x = 0, 1, 2 and y = 0, 1, 0: slope 0, residuals -1/3, 2/3, -1/3, sum of squares 2/3;
    # one degree of freedom over a spread of 2 gives sqrt(1/3).
    line = fit([0.0, 1.0, 0.0])
    assert line.slope == pytest.approx(0.0)
    assert line.standard_error == pytest.approx((1 / 3) ** 0.5)
    assert line.is_flat


def test_noise_is_flat_and_a_small_rise_is_not() -> None:
    draw = random.Random(5)
    noise = [1.0 + 0.1 * draw.gauss(0.0, 1.0) for _ in range(200)]
    assert abs(fit(noise).slope) < 3 * fit(noise).standard_error
    # One standard error of the slope is 0.1 / sqrt(200^3 / 12) = 0.00012.
    assert not fit([y + 0.001 * i for i, y in enumerate(noise)]).is_flat


def test_two_values_have_no_error() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        fit([1.0, 2.0])


def test_longest_gap_begins_with_the_step_before() -> None:
    steps = [1.0, 1.1, 1.5, 1.6]
    assert _longest_gap(steps, 2, 1.2) == pytest.approx(0.4)
    assert _longest_gap(steps, 0, 0.2) == pytest.approx(0.8)
    assert _longest_gap(steps, 4, 1.7) == 0.0

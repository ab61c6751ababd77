"""Golden vectors of the reference, A2 (scalars), A4 and the average of A5 (compat mode)."""

from __future__ import annotations

import pytest

from spade_async.grpo import advantage_reference as reference


def test_a2_format_returns_and_episodes():
    assert reference.format_reward(True, 2.0, -1.0) == 2.0
    assert reference.format_reward(False, 2.0, -1.0) == -1.0
    assert reference.discounted_returns([1.0, 2.0, 3.0], 0.5) == [2.75, 3.5, 3.0]
    assert reference.episode_return([0.2, 2.0], terminated=True) == 1.0
    assert reference.episode_return([-2.0], terminated=True) == -1.0
    assert reference.episode_return([1.0], terminated=False) == 0.0
    assert reference.episode_return([0.0, 1.0], terminated=True) == 1.0


def test_a4_normalisation():
    averages: dict[str, reference.MovingMean] = {}
    found = reference.normalise({"g": [0.0, 1.0]}, "ema_baseline", averages, 0.5)
    assert found == {"g": [0.0, 1.0]}
    assert averages["g"].value == 0.5
    found = reference.normalise({"g": [0.0, 1.0]}, "grpo", {}, 0.5)
    assert found["g"] == pytest.approx([-1.0, 1.0], abs=1e-7, rel=0.0)
    assert found["g"][1] < 1.0, "the deviation is made larger by 1e-8"
    with pytest.raises(ValueError, match="normalisation 'mean'"):
        reference.normalise({"g": [0.0]}, "mean", {}, 0.5)


def test_a4_equal_plays_give_zeros():
    assert reference.z_score([0.5, 0.5]) == [0.0, 0.0]


def test_a4_up_sampling():
    pair = [reference.Copied("a"), reference.Copied("b")]
    filled = reference.up_sample(pair, 5)
    assert [(s.sample_id, s.is_copy) for s in filled] == [
        ("a", False), ("b", False), ("a", True), ("b", True), ("a", True)
    ]  # fmt: skip
    assert reference.up_sample([], 5) == []


def test_a5_moving_mean():
    average = reference.MovingMean(0.5)
    assert (average.update(1.0), average.update(0.0)) == (1.0, 0.5)

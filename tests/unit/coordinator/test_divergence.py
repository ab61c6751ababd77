from __future__ import annotations

from spade_async.coordinator.divergence import DivergenceWatch


def test_one_noisy_step_is_not_told_and_three_in_a_row_are_told_once() -> None:
    watch = DivergenceWatch("tis_token", 0.1)
    assert [watch.observe(kl) for kl in (0.2, 0.2, 0.05, 0.2, 0.2)] == [None] * 5
    told = watch.observe(0.3)
    assert told is not None
    assert 'rule="tis_token"' in told
    assert "above 0.1" in told
    assert [watch.observe(0.3) for _ in range(5)] == [None] * 5


def test_it_is_told_again_after_a_return_below_half_the_limit() -> None:
    watch = DivergenceWatch("none", 0.1)
    for _ in range(3):
        watch.observe(0.2)
    assert [watch.observe(kl) for kl in (0.09, 0.2, 0.2, 0.2)] == [None] * 4
    watch.observe(0.01)
    assert [watch.observe(0.2) is not None for _ in range(3)] == [False, False, True]


def test_a_step_without_the_figure_changes_nothing() -> None:
    watch = DivergenceWatch("none", 0.1)
    assert [watch.observe(kl) for kl in (0.2, None, 0.2)] == [None] * 3
    assert watch.observe(0.2) is not None

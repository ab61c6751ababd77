"""Numbers of a step: what did not occur is absent, what is known to be zero is zero."""

from __future__ import annotations

from spade_async.coordinator.window import StepWindow
from spade_async.types import Arm


def test_a_quantity_that_did_not_occur_is_absent() -> None:
    found = StepWindow().flush()
    for tag in ("designer/validity", "regret/mean", "solve/no_hint", "rate/episodes_per_hour"):
        assert tag not in found


def test_validity_counts_rejections_by_stage_and_zero_once_seen() -> None:
    window = StepWindow()
    window.design(stage="load", leak_share=0.0)
    window.design(stage=None, leak_share=0.5)
    found = window.flush()
    assert found["designer/validity"] == 0.5
    assert found["validity/stage/load"] == 1.0
    assert found["designer/leak_share"] == 0.5
    window.design(stage=None, leak_share=0.0)
    found = window.flush()
    assert found["validity/stage/load"] == 0.0
    assert "validity/stage/reset" not in found
    assert "validity/stage/load" not in window.flush()


def test_label_shares_add_up_to_one_and_a_label_not_played_is_zero() -> None:
    window = StepWindow()
    window.played((("family", "sort"), ("level", "1")))
    window.played((("family", "mod"), ("level", "3")))
    found = window.flush()
    assert found["mix/family/sort"] == found["mix/family/mod"] == 0.5
    assert found["labels/mean/level"] == 2.0
    window.played((("family", "mod"), ("level", "3")))
    found = window.flush()
    assert (found["mix/family/sort"], found["mix/family/mod"]) == (0.0, 1.0)
    assert "labels/mean/family" not in found


def test_validity_over_200_designs_needs_200_designs() -> None:
    window = StepWindow()
    for index in range(200):
        assert "designer/validity_window" not in window.flush()
        window.design(stage=None if index % 4 else "parse", leak_share=0.0)
    assert window.flush()["designer/validity_window"] == 0.75


def test_a_missing_episode_is_counted_and_is_no_return() -> None:
    window = StepWindow()
    window.episode(Arm.NO_HINT, None, 0)
    window.episode(Arm.NO_HINT, 1.0, 4)
    assert window.returns(Arm.NO_HINT) == [1.0]
    found = window.flush()
    assert found["episodes/missing"] == 1.0
    assert found["agent/tokens_per_episode"] == 4.0

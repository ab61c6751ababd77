"""The arithmetic of the bench of overlap: windows, shares, the ceiling, fair lengths."""

from __future__ import annotations

import pytest

from benches.overlap import failures
from benches.scripted import figures
from benches.scripted.setting import NO_LIMIT, DelaySetting, warm_up_steps
from spade_async.ledger.timings import StepTime, TaskTime


def step(ordinal: int, trained_s: float, *, tokens: int = 100, busy_s: float = 1.0) -> StepTime:
    return StepTime(
        ordinal=ordinal,
        num_samples=1,
        num_tokens=tokens,
        taken_unix_s=trained_s - busy_s,
        trained_unix_s=trained_s,
        busy_s=busy_s,
    )


def task(finished_s: float, engine_s: float) -> TaskTime:
    return TaskTime(
        task_id="t", position=0, group_id="g", kind="play", arm="no_hint", generator="gen-0",
        dispatched_unix_s=0.0, started_unix_s=0.0, finished_unix_s=finished_s, queue_s=0.0,
        engine_s=engine_s, num_tokens=1,
    )  # fmt: skip


STEPS = [step(1, 10.0), step(2, 12.0), step(3, 16.0, tokens=200, busy_s=2.0), step(4, 18.0)]


def test_window_ends_within_the_step_that_trains_the_last_token() -> None:
    # 100 tokens of step 2 and 150 of the 200 of step 3: three quarters of its 4 s and its 2 s.
    found = figures.window(STEPS, 1, 250.0)
    assert (found.start_s, found.end_s) == (10.0, 12.0 + 0.75 * 4.0)
    assert found.busy_s == 1.0 + 0.75 * 2.0
    assert found.steps == 1.75
    assert figures.trained_tokens(STEPS, 1, 2) == 300
    assert figures.window(STEPS, 1, 300.0).end_s == 16.0


def test_run_that_is_too_short_for_the_window_is_refused() -> None:
    with pytest.raises(ValueError, match="400 tokens were trained after step 1, not 500"):
        figures.window(STEPS, 1, 500.0)


def test_slots_are_counted_for_the_part_of_a_request_inside_the_window() -> None:
    # Held 8-12, 9-11, 14-19, 1-2 of a window 10-15: 2 + 1 + 1 + 0 seconds.
    tasks = [task(12.0, 4.0), task(11.0, 2.0), task(19.0, 5.0), task(2.0, 1.0)]
    assert figures.slot_seconds(tasks, 10.0, 15.0) == 4.0


def test_idle_share_is_what_was_not_used() -> None:
    assert figures.idle_share(7.5, 10.0) == 0.25
    # A clock that runs a little ahead must not give a negative share.
    assert figures.idle_share(10.1, 10.0) == 0.0


def test_ceiling_is_the_synchronous_step_over_the_slower_side() -> None:
    assert figures.ceiling(sync_s=10.0, generation_s=2.0, learn_s=2.5) == 4.0
    assert figures.ceiling(sync_s=10.0, generation_s=4.0, learn_s=2.5) == 2.5


def test_length_ratio_sees_a_missing_long_sample() -> None:
    assert figures.length_ratio([10, 20, 30], [10, 20, 30]) == 1.0
    # Without the longest: 15 against 20.
    assert figures.length_ratio([10, 20], [10, 20, 30]) == 0.75
    assert figures.length_ratio([], [10]) is None


def test_learner_takes_what_the_slots_take_for_a_step() -> None:
    setting = DelaySetting(episode_s=10.0, limit=NO_LIMIT)
    # 8 groups of 8, 6 of them played with a hint as well, and 7.5 designs twice as long:
    # (64 + 48 + 15) x 10 s / 64 slots.
    assert setting.generation_s == pytest.approx(19.84, abs=0.01)
    # The limit of 5.2 means takes away 4 % of the mean.
    assert DelaySetting(episode_s=10.0).generation_s == pytest.approx(18.99, abs=0.01)
    assert [warm_up_steps(s) for s in (0, 8)] == [3, 19]


def test_broken_promise_is_named() -> None:
    row = {"staleness_bound": 2, "samples_over_bound": 3, "tokens_discarded_for_age": 0}
    lines = failures({"delay_bound": [row], "unlimited": [], "cpu_bound": []})
    assert lines == ["delay_bound, bound 2: samples_over_bound is 3, not 0"]

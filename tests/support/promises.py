"""What holds of a run whatever happened to it, from its report, its rows and its curves."""

from __future__ import annotations

from collections import Counter

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.whole_run import WholeRun


def check_nothing_lost_or_twice(run: WholeRun, num_steps: int, *more: str) -> None:
    """Every step was trained once and every sample of it once; `more` figures are 0 as well."""
    figures = run.report()
    keys = ("samples_lost", "samples_trained_twice", "samples_over_bound", "lost_to_rollback")
    assert {key: figures[key] for key in (*keys, *more)} == dict.fromkeys((*keys, *more), 0)
    assert figures["steps"] == num_steps
    # The same from the rows themselves.
    trained = Counter(
        row[0]
        for row in run.query(
            "SELECT sample_id FROM batch_samples JOIN batches USING (ordinal)"
            " WHERE state = 'consumed'"
        )
    )
    assert set(trained.values()) == {1}
    steps = [row[0] for row in run.query("SELECT step FROM batches WHERE state = 'consumed'")]
    assert sorted(steps) == list(range(1, num_steps + 1))


def check_curves_go_on(run: WholeRun, whole_tag: str, num_steps: int) -> None:
    """The step axis of every curve rises without doubles; one has a point for each step."""
    events = EventAccumulator(str(run.folder.tensorboard), size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        axis = [event.step for event in events.Scalars(tag)]
        assert axis == sorted(set(axis)), tag
    whole = [event.step for event in events.Scalars(whole_tag)]
    assert whole == list(range(1, num_steps + 1))

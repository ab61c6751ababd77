"""When a dead part is started again, and when the run ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_async.config.supervisor import SupervisorConfig
from spade_async.supervisor.restarts import Restarts


def restarts(**values: float) -> Restarts:
    return Restarts(SupervisorConfig(**values))  # type: ignore[arg-type]


def test_pause_doubles_up_to_its_limit_and_the_last_death_ends_the_run() -> None:
    policy = restarts(max_deaths=6, backoff_s=1.0, backoff_max_s=5.0)
    assert [policy.died("a") for _ in range(6)] == [1.0, 2.0, 4.0, 5.0, 5.0, None]
    assert policy.total == 5


def test_causes_are_counted_apart() -> None:
    policy = restarts(max_deaths=2)
    assert policy.died("generator signal 9") is not None
    assert policy.died("learner signal 9") is not None
    assert policy.died("generator exit 1 ValueError") is not None
    assert policy.died("generator signal 9") is None


def test_new_step_forgives_and_a_repeated_one_does_not() -> None:
    policy = restarts(max_deaths=3)
    policy.note_step(7)
    policy.died("a")
    policy.died("a")
    for undone in (5, 6, 7):
        policy.note_step(undone)
    assert policy.count("a") == 2
    policy.note_step(8)
    assert policy.count("a") == 0
    assert policy.died("a") == pytest.approx(0.5)


@given(st.lists(st.sampled_from(["a", "b", "step"]), max_size=60), st.integers(1, 6))
def test_run_ends_exactly_at_the_last_allowed_death_of_one_cause(
    events: list[str], max_deaths: int
) -> None:
    policy = restarts(max_deaths=max_deaths)
    step, since = 0, {"a": 0, "b": 0}
    policy.note_step(step)
    for event in events:
        if event == "step":
            step += 1
            policy.note_step(step)
            since = {"a": 0, "b": 0}
            continue
        since[event] += 1
        assert (policy.died(event) is None) == (since[event] >= max_deaths)

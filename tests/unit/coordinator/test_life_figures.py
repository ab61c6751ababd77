"""Figures of deaths: totals that go on, durations of the deaths since the last step."""

from __future__ import annotations

from collections import Counter

from spade_async.coordinator.life_figures import LifeFigures
from spade_async.coordinator.news import News
from spade_async.telemetry.metrics import find


def test_deaths_restarts_and_durations_are_counted() -> None:
    figures, counters = LifeFigures(), Counter[str]()
    assert figures.step(counters)["lives/restarts"] == 0.0
    figures.died(counters, News("gen-0", "", 0.5, "generator signal 9", 100.0), now_s=100.25)
    figures.died(counters, News("gen-1", "", 1.0, "generator signal 9", 100.5), now_s=100.6)
    figures.died(counters, News("learner", "", None, "learner exit 1 WeightsError", 101.0), 103.0)
    figures.back("gen-0", now_s=104.0)
    figures.back("gen-7", now_s=999.0)  # its first hello
    found = figures.step(counters)
    assert found["lives/deaths/generator/signal_9"] == 2.0
    assert found["lives/deaths/learner/exit_1_WeightsError"] == 1.0
    assert (found["lives/restarts"], found["lives/backoff_s"]) == (2.0, 1.5)
    assert (found["lives/named_s"], found["lives/back_s"]) == (2.0, 4.0)
    assert all(find(tag) is not None for tag in found)

    again = figures.step(counters)
    assert again["lives/named_s"] is again["lives/back_s"] is None
    assert again["lives/restarts"] == 2.0


def test_death_of_an_older_supervisors_news_is_counted_without_a_cause() -> None:
    figures, counters = LifeFigures(), Counter[str]()
    figures.died(counters, News("gen-0", "", None), now_s=5.0)
    found = figures.step(counters)
    assert found["lives/deaths/generator/unknown"] == 1.0
    assert found["lives/named_s"] == 0.0

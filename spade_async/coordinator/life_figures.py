"""What deaths and hangs cost the run, as figures: `lives/*` in TensorBoard.

Totals are counters of the run and go on over a resume; the two durations are of the deaths since
the last learner step. A coordinator that dies is the end of a start and is not among them.
"""

from __future__ import annotations

import time
from collections import Counter

from spade_async.coordinator.news import News
from spade_async.telemetry.metrics import part

_DEATH = "death/"


class LifeFigures:
    """Notes deaths and returns; the totals are in the counters it is given."""

    def __init__(self) -> None:
        self._died_s: dict[str, float] = {}
        self._named_s: float | None = None
        self._back_s: float | None = None

    def died(self, counters: Counter[str], news: News, now_s: float | None = None) -> None:
        """A part died, as the supervisor says."""
        now_s = time.monotonic() if now_s is None else now_s
        kind, _, how = news.cause.partition(" ")
        kind = kind or ("generator" if news.name.startswith("gen-") else "learner")
        counters[f"{_DEATH}{kind}/{part(how or 'unknown')}"] += 1
        if news.again_in_s is not None:
            counters["restarts"] += 1
            counters["backoff_us"] += int(news.again_in_s * 1e6)
        died_s = now_s if news.died_s is None else min(news.died_s, now_s)
        self._died_s[news.name] = died_s
        self._named_s = max(self._named_s or 0.0, now_s - died_s)

    def back(self, name: str, now_s: float | None = None) -> None:
        """It said hello again."""
        died_s = self._died_s.pop(name, None)
        if died_s is not None:
            now_s = time.monotonic() if now_s is None else now_s
            self._back_s = max(self._back_s or 0.0, now_s - died_s)

    def step(self, counters: Counter[str]) -> dict[str, float | None]:
        """The figures of a learner step, by tag."""
        found: dict[str, float | None] = {
            f"lives/{key}": float(counters[key])
            for key in ("restarts", "hangs", "fall_backs", "steps_undone", "tasks_again")
        }
        found["lives/backoff_s"] = counters["backoff_us"] / 1e6
        found["lives/named_s"], found["lives/back_s"] = self._named_s, self._back_s
        self._named_s = self._back_s = None
        for key, count in counters.items():
            if key.startswith(_DEATH):
                found[f"lives/deaths/{key.removeprefix(_DEATH)}"] = float(count)
        return found

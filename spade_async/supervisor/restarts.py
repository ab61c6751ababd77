"""When a dead part is started again, and when the run ends instead.

A death is known by its cause (`death.cause`). Each restart waits twice as long as the one before,
and a cause that strikes `max_deaths` times without a new learner step between ends the run: what
does not go away by itself should be seen. A step that only repeats an undone one is no new step.
"""

from __future__ import annotations

from collections import Counter

from spade_async.config.supervisor import SupervisorConfig


class Restarts:
    """Counts deaths by cause. Pure: no clock, no processes."""

    def __init__(self, config: SupervisorConfig) -> None:
        self._config = config
        self._deaths: Counter[str] = Counter()
        self._highest_step: int | None = None
        self.total = 0
        """Restarts that were granted."""

    def note_step(self, step: int) -> None:
        """The learner step of the newest weights; further on than ever: all is forgiven."""
        if self._highest_step is not None and step > self._highest_step:
            self._deaths.clear()
        self._highest_step = max(step, self._highest_step or 0)

    def died(self, cause: str) -> float | None:
        """Seconds to wait before the restart; None when the run has to end."""
        self._deaths[cause] += 1
        count = self._deaths[cause]
        if count >= self._config.max_deaths:
            return None
        self.total += 1
        # The exponent is bounded: a float overflows at 2 ** 1024.
        pause_s = self._config.backoff_s * 2.0 ** min(count - 1, 64)
        return min(pause_s, self._config.backoff_max_s)

    def count(self, cause: str) -> int:
        """Deaths from that cause since the last new step."""
        return self._deaths[cause]

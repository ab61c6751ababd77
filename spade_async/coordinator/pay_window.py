"""What designs were paid for since the last learner step, as numbers by skill and by component.

A quantity that did not occur is absent, never 0 (docs/metrics.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from spade_async.coordinator.window import mean
from spade_async.designer.rewards.facts import Raw
from spade_async.designer.rewards.learning_potential import PotentialTracker
from spade_async.telemetry.metrics import part


class PayWindow:
    """Collects pay; `flush` turns it into tagged numbers and starts anew."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._values: dict[str, list[float]] = {}
        self._masked: list[bool] = []

    def _add(self, tag: str, value: float) -> None:
        self._values.setdefault(tag, []).append(value)

    def design(self, skill: str, raw: Raw, *, offsets: int, plays: int) -> None:
        """One design that was played came to its pay."""
        self._masked.append(raw.is_masked)
        self._add("reward/offsets", float(offsets))
        self._add("reward/episodes", float(plays))
        if raw.value is not None:
            self._add("reward/value", raw.value)
            self._add(f"reward/skill/{part(skill)}/value", raw.value)
        for name, value in raw.components.items():
            self._add(f"reward/component/{name}", value)
            self._add(f"reward/skill/{part(skill)}/{name}", value)

    def paid(self, skill: str, reward: float) -> None:
        """A design was paid, played or not."""
        self._add(f"reward/skill/{part(skill)}/paid", reward)

    def tracker(self, skill: str, tracker: PotentialTracker) -> None:
        """The level of a skill moved: the newest stands."""
        name = f"reward/skill/{part(skill)}"
        for what, value in (("fast", tracker.fast), ("slow", tracker.slow)):
            if value is not None:
                self._values[f"{name}/mu_{what}"] = [value]
        self._values[f"{name}/learning_potential"] = [tracker.potential]

    def flush(self) -> dict[str, float | None]:
        """Means of this window by tag; the window starts anew."""
        found = {tag: mean(values) for tag, values in self._values.items()}
        if any(self._masked):
            found["reward/masked_share"] = mean(map(float, self._masked))
        self._clear()
        return found


def held_figures(held: Iterable[tuple[int, int]]) -> dict[str, float]:
    """Gauges of the designs that wait for their pay: how many, and the mean age of their groups.

    Args:
        held: (designs held, learner steps since the birth) of each group that has any.
    """
    rows = list(held)
    total = sum(count for count, _ in rows)
    if not total:
        return {"reward/held": 0.0}
    return {
        "reward/held": float(total),
        "reward/held_steps": sum(count * age for count, age in rows) / total,
    }

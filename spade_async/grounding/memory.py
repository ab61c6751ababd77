"""Environment memory: what was played lately and how it stood, for exemplars and replays (step 7).

Bounded, JSON-able, no clock. One entry per skeleton, so that near-duplicates do not crowd it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spade_async.types import Environment, RegretClass, RegretEstimate


@dataclass(frozen=True, slots=True)
class Entry:
    """One remembered environment with its newest estimate."""

    environment: Environment
    estimate: RegretEstimate
    step: int
    """Learner step of the estimate."""

    @property
    def is_frontier(self) -> bool:
        """Whether the agent can learn from it now."""
        return self.estimate.regret_class is RegretClass.FRONTIER


class Memory:
    """At most `capacity` environments, one per skeleton; the oldest estimate leaves first.

    An environment measured again always gets its newest estimate. A *different* program of a
    remembered skeleton replaces the old one, unless that would replace a frontier entry by one that
    is not.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, environment: Environment, estimate: RegretEstimate, step: int) -> None:
        """Remember it as of learner step `step`."""
        if self._capacity == 0:
            return
        key = environment.skeleton or environment.environment_id
        entry = Entry(environment, estimate, step)
        old = self._entries.get(key)
        is_same = old is not None and old.environment.environment_id == environment.environment_id
        if old is not None and not is_same and old.is_frontier and not entry.is_frontier:
            return
        self._entries.pop(key, None)
        self._entries[key] = entry
        if len(self._entries) > self._capacity:
            del self._entries[next(iter(self._entries))]

    def exemplars(self, n: int, rng_seed: int) -> list[dict[str, Any]]:
        """Up to n examples for the designer's prompt, drawn among those of highest paid regret.

        The best max(3n, 10) frontier environments are candidates; only when there are fewer than n
        the others with positive regret follow, best first.

        Returns:
            [{"source", "labels": {name: value}, "regret", "mean_no_hint"}].
        """
        ranked = sorted(self._entries.values(), key=_by_paid_regret)
        frontier = [entry for entry in ranked if entry.is_frontier][: max(3 * n, 10)]
        chosen = random.Random(rng_seed).sample(frontier, min(n, len(frontier)))
        others = [e for e in ranked if not e.is_frontier and e.estimate.paid_regret > 0.0]
        chosen += others[: n - len(chosen)]
        return [
            {
                "source": entry.environment.source,
                "labels": dict(entry.environment.labels),
                "regret": entry.estimate.regret,
                "mean_no_hint": entry.estimate.mean_no_hint,
            }
            for entry in chosen
        ]

    def replay_candidates(self) -> list[Environment]:
        """Frontier environments worth playing again, highest paid regret first."""
        frontier = [entry for entry in self._entries.values() if entry.is_frontier]
        return [entry.environment for entry in sorted(frontier, key=_by_paid_regret)]

    def state(self) -> list[dict[str, Any]]:
        """Entries, oldest estimate first; JSON-able, for the ledger."""
        return [dataclasses.asdict(entry) for entry in self._entries.values()]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Inverse of `state`, also after a trip through JSON; of too many the newest stay."""
        self._entries.clear()
        for row in state:
            environment = dict(row["environment"])
            environment["labels"] = tuple((name, value) for name, value in environment["labels"])
            estimate = dict(row["estimate"])
            estimate["regret_class"] = RegretClass(estimate["regret_class"])
            self.add(Environment(**environment), RegretEstimate(**estimate), int(row["step"]))


def _by_paid_regret(entry: Entry) -> tuple[float, str]:
    return -entry.estimate.paid_regret, entry.environment.environment_id

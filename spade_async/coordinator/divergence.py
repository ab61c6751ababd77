"""Tells when a run's samples have drifted further than its correction rule was seen to bear.

Age is a proxy; what hurts is the divergence of the policy that sampled from the one that learns.
The limit comes from the age table of docs/correction.md. Pure: no clock, no sockets.
"""

from __future__ import annotations

PATIENCE = 3
"""Steps in a row above the limit before it is told: one step's estimate is noisy."""
REARM = 0.5
"""It is told again only after the divergence was below this share of the limit."""


class DivergenceWatch:
    """Owns the count of steps above the limit."""

    def __init__(self, rule: str, limit: float):
        """Watch one run.

        Args:
            rule: learner.correction.rule, for the sentence.
            limit: KL(generator || learner) per token, in nats.
        """
        self._rule = rule
        self._limit = limit
        self._above = 0
        self._is_armed = True

    def observe(self, kl: float | None) -> str | None:
        """Take one step's divergence (None: not measured); a sentence when it must be told."""
        if kl is None:
            return None
        if kl < REARM * self._limit:
            self._is_armed = True
        self._above = self._above + 1 if kl > self._limit else 0
        if self._above < PATIENCE or not self._is_armed:
            return None
        self._is_armed = False
        return (
            f"learner/kl_generator was above {self._limit:g} for {PATIENCE} steps (now {kl:.3g}): "
            f'learner.correction.rule="{self._rule}" was not seen to hold there'
        )

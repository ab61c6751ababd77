"""Environments that hung, as the reference treats them (`run.compat = "reference"`).

One play of an environment goes first (the canary). When a play hangs, the environment is listed for
as long as the weights are the same, which stands for the reference's rollout, and no other play of
it is begun. Plays that run already end by themselves.
"""

from __future__ import annotations

from spade_async.types import Outcome

SKIPPED = f"environment: {Outcome.TIMED_OUT} in an earlier play, so it was not begun"
"""Why a play is missing. Reads as a hang, which its design is charged with."""


class Blacklist:
    """What hung under the newest weights that were seen."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._listed: set[str] = set()
        self.num_skipped = 0
        """Plays that were not begun."""

    def __len__(self) -> int:
        return len(self._listed)

    def hung(self, environment_id: str, version: int) -> None:
        """List it; `version` is the packed one of the weights that are loaded."""
        self._renew(version)
        self._listed.add(environment_id)

    def has(self, environment_id: str, version: int) -> bool:
        """Whether it hung under these weights."""
        self._renew(version)
        return environment_id in self._listed

    def _renew(self, version: int) -> None:
        if version != self._version:
            self._version = version
            self._listed.clear()

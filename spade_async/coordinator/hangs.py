"""Which parts hang: alive, and without progress for longer than their state allows.

A heartbeat carries a counter that grows with each unit of work. A part that works must move it; one
that waits for others need not; one that says nothing at all is stopped or stuck. Pure but for the
default clock. A pause of the coordinator itself is nobody's hang: it is taken off everyone's time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from spade_async.config.supervisor import SupervisorConfig
from spade_async.telemetry.status import HungPart

_OWN_PAUSE_S = 5.0
"""Longer than this between two questions is a pause of the one who asks."""


@dataclass(slots=True)
class _Seen:
    since_s: float
    """Last change of state or progress."""
    heard_s: float
    state: str = ""
    """"" before the first word."""
    progress: int = -1


class Hangs:
    """Progress of each expected part, and what it says about them."""

    def __init__(
        self,
        config: SupervisorConfig,
        names: Iterable[str],
        *,
        longest_call_s: float = 0.0,
        now_s: float | None = None,
    ) -> None:
        """`longest_call_s` is the longest jailed call, during which a generator may stand still."""
        now_s = time.monotonic() if now_s is None else now_s
        self._silent_s, self._starting_s = config.silent_s, config.starting_s
        self._stalled_s = config.stalled_s
        self._limits = {
            "starting": config.starting_s,
            "loading_weights": config.loading_weights_s,
            "working": max(config.working_s, 2 * longest_call_s),
        }
        self._seen = {name: _Seen(now_s, now_s) for name in names}
        self._dead: set[str] = set()
        self._asked_s = now_s

    def wait_for_us(self, names: Iterable[str]) -> None:
        """These have said hello and cannot begin before they are welcomed."""
        for name in names:
            self.expect(name)

    def expect(self, name: str, now_s: float | None = None) -> None:
        """That part starts anew."""
        now_s = time.monotonic() if now_s is None else now_s
        self._seen[name] = _Seen(now_s, now_s)
        self._dead.discard(name)

    def died(self, name: str) -> None:
        """A dead part does not hang."""
        self._dead.add(name)

    def beat(self, name: str, state: str, progress: int, now_s: float | None = None) -> None:
        """A heartbeat came in."""
        now_s = time.monotonic() if now_s is None else now_s
        seen = self._seen.setdefault(name, _Seen(now_s, now_s))
        self._dead.discard(name)
        seen.heard_s = now_s
        if (state, progress) != (seen.state, seen.progress):
            seen.state, seen.progress, seen.since_s = state, progress, now_s

    def found(self, now_s: float | None = None) -> list[HungPart]:
        """Parts that hang now; all of them when none has moved for `supervisor.stalled_s`."""
        now_s = time.monotonic() if now_s is None else now_s
        pause_s = now_s - self._asked_s
        self._asked_s = now_s
        living = {name: seen for name, seen in self._seen.items() if name not in self._dead}
        if pause_s > _OWN_PAUSE_S:
            for seen in living.values():
                seen.since_s += pause_s
                seen.heard_s += pause_s
        found = [hung for name, seen in living.items() if (hung := self._hung(name, seen, now_s))]
        if found or not living:
            return found
        still_s = min(now_s - seen.since_s for seen in living.values())
        if still_s <= self._stalled_s:
            return []
        return [
            HungPart(name=name, state="stalled", seconds=still_s, limit_s=self._stalled_s)
            for name in living
        ]

    def _hung(self, name: str, seen: _Seen, now_s: float) -> HungPart | None:
        silent_s = now_s - seen.heard_s
        limit_s = self._silent_s if seen.state else self._starting_s
        if silent_s > limit_s:
            state = "silent" if seen.state else "starting"
            return HungPart(name=name, state=state, seconds=silent_s, limit_s=limit_s)
        still_s = now_s - seen.since_s
        limit = self._limits.get(seen.state)
        if limit is not None and still_s > limit:
            return HungPart(name=name, state=seen.state, seconds=still_s, limit_s=limit)
        return None

"""Which parts of the run have said nothing for too long: a hang is shown, never killed.

Heartbeats come once a second from a thread that does no model work, so silence means a process that
is stopped, swapped out or stuck in native code. Death is the supervisor's business.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from spade_async.telemetry.status import RunStatus

SILENT_S = 10.0
"""After this long without a heartbeat a part is named as silent."""
STATUS_TOO_OLD_S = 20.0
"""The coordinator writes its status once a second; its start takes longest."""
FIRST_WORD_S = 60.0
"""The same before its first heartbeat: it imports torch and reads the model."""


class Silence:
    """When each expected part was last heard."""

    def __init__(self, names: Iterable[str], now_s: float | None = None) -> None:
        """`names` are the parts that are expected to speak."""
        begin_s = time.monotonic() if now_s is None else now_s
        self._limit_s = dict.fromkeys(names, FIRST_WORD_S)
        self._heard_s = dict.fromkeys(self._limit_s, begin_s)

    def heard(self, name: str, now_s: float | None = None) -> None:
        """A heartbeat of that part came in."""
        self._limit_s[name] = SILENT_S
        self._heard_s[name] = time.monotonic() if now_s is None else now_s

    def expect(self, name: str, now_s: float | None = None) -> None:
        """That part starts anew: its first word may take long."""
        self._limit_s[name] = FIRST_WORD_S
        self._heard_s[name] = time.monotonic() if now_s is None else now_s

    def silent(self, now_s: float | None = None) -> dict[str, float]:
        """Seconds of silence of each part that is over its limit, the longest first."""
        now_s = time.monotonic() if now_s is None else now_s
        silence = {name: now_s - heard_s for name, heard_s in self._heard_s.items()}
        over = {name: s for name, s in silence.items() if s > self._limit_s[name]}
        return dict(sorted(over.items(), key=lambda item: -item[1]))


def sentence(silent: dict[str, float]) -> str | None:
    """What limits a run that has silent parts; None when all speak."""
    if not silent:
        return None
    name, seconds = next(iter(silent.items()))
    return (
        f"{name}, silent for {seconds:.0f} s: it is stopped or hangs; see logs/{name}.log, or "
        "press Ctrl-C twice and go on with --resume"
    )


def with_silence(status: RunStatus) -> RunStatus:
    """Status of a live run: a coordinator cannot say that it hangs, but what it said gets old."""
    silent_s = status.age_s
    if silent_s > STATUS_TOO_OLD_S:
        status.limited_by = sentence({"coordinator": silent_s}) or ""
    return status

"""Alerts: what a user who is not looking should know, told once and everywhere.

One `Alert` goes to `alerts.jsonl` in the run folder, to the log, to whoever shows the newest ones
(status.json, TensorBoard: the coordinator does that) and to the user's own command. Telling never
fails and never waits: what the disk does not take is kept and written later, the command runs in a
thread of its own (`alert_command.py`). Repeated alerts of one kind are held back and counted.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from spade_async.telemetry.alert_command import AlertCommand
from spade_async.telemetry.alert_kinds import KINDS

log = logging.getLogger(__name__)

WINDOW_S = 60.0
"""Alerts of one kind are counted over this long."""
MOST_PER_WINDOW = 3
"""Alerts of one kind that are told in `WINDOW_S`; more are held back and counted."""
RECENT = 50
"""Newest alerts kept in memory."""
_MOST_UNWRITTEN = 1000
_NUMBERS = re.compile(r"\d+")


class Alert(BaseModel):
    """One thing a user should know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    unix_s: float = 0.0
    """Wall clock when it was told."""
    step: int = 0
    """Learner step of the newest weights then."""
    kind: str = "other"
    """Key of `alert_kinds.KINDS`, or a new one."""
    text: str
    """What happened, with names and figures."""
    action: str = ""
    """What to do; "" when nothing needs to be done."""
    held_back: int = 0
    """Alerts of this kind that were not told since the last one that was."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        # A plain sentence, as status files of earlier versions hold it.
        return {"text": value} if isinstance(value, str) else value

    def __str__(self) -> str:
        more = f" (and {self.held_back} more like it)" if self.held_back else ""
        action = f"; {self.action}" if self.action else ""
        return f"{self.text}{more}{action}"


class Alerts:
    """Tells alerts; one per process that has something to tell.

    Args:
        path: `alerts.jsonl`; None keeps them in memory alone.
        command: `run.alert_command`: a shell string or an argument list; "" for none.
        clock: monotonic seconds, another one in tests.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        command: str | Sequence[str] = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._command = AlertCommand(command) if command else None
        self._clock = clock
        self._told: dict[str, deque[float]] = {}
        self._texts: dict[tuple[str, str], float] = {}
        self._held: dict[str, int] = {}
        self._unwritten: deque[str] = deque(maxlen=_MOST_UNWRITTEN)
        self.recent: deque[Alert] = deque(maxlen=RECENT)
        """Newest alerts, oldest first."""

    def tell(self, kind: str, text: str, *, step: int = 0, action: str = "") -> Alert | None:
        """Tell an alert; None when it is held back because it repeats.

        Args:
            kind: what it is about, a key of `KINDS`.
            text: one sentence with names and figures.
            step: learner step of the newest weights.
            action: what to do; the kind's own sentence when empty.
        """
        # It may quote a program or a file's name: one line, nothing that a terminal obeys and no
        # lone surrogate, which neither the file nor the ledger takes.
        text = "".join(c if c.isprintable() else " " for c in text)
        if self._repeats(kind, text):
            self._held[kind] = self._held.get(kind, 0) + 1
            log.warning("alert %s held back: %s", kind, text)
            return None
        known = KINDS.get(kind)
        alert = Alert(
            unix_s=time.time(),
            step=step,
            kind=kind,
            text=text,
            action=action or (known.action if known else ""),
            held_back=self._held.pop(kind, 0),
        )
        log.warning("alert %s: %s", kind, alert)
        self.recent.append(alert)
        self._unwritten.append(alert.model_dump_json())
        self.write()
        if self._command is not None:
            self._command.run(alert.model_dump_json())
        return alert

    def write(self) -> None:
        """Append what is not yet in the file; what does not fit on the disk is kept for later."""
        if self._path is None:
            self._unwritten.clear()
            return
        while self._unwritten:
            line = (self._unwritten[0] + "\n").encode()
            try:
                _append_whole(self._path, line)
            except OSError as cause:
                log.warning("%s cannot be written: %s", self._path, cause)
                return
            self._unwritten.popleft()

    def close(self, timeout_s: float = 5.0) -> None:
        """Write the rest and let the command finish what it was given, for so long."""
        self.write()
        if self._command is not None:
            self._command.close(timeout_s)

    def _repeats(self, kind: str, text: str) -> bool:
        now = self._clock()
        # The same sentence with other numbers is the same sentence.
        key = (kind, _NUMBERS.sub("0", text))
        self._texts = {k: s for k, s in self._texts.items() if now - s < WINDOW_S}
        told = self._told.setdefault(kind, deque())
        while told and now - told[0] >= WINDOW_S:
            told.popleft()
        if key in self._texts or len(told) >= MOST_PER_WINDOW:
            return True
        self._texts[key] = now
        told.append(now)
        return False


def _append_whole(path: Path, line: bytes) -> None:
    """Append a line or nothing: a disk that fills up in the middle must not leave half of one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        written = os.write(descriptor, line)
        if written < len(line):
            os.ftruncate(descriptor, before)
            raise OSError(28, "No space left on device")
    finally:
        os.close(descriptor)

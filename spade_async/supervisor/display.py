"""What the user sees while a run lives: a live panel on a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from typing import Protocol

from rich.console import Console
from rich.live import Live

from spade_async.environment.text import clean
from spade_async.supervisor.panel import panel, plain_line
from spade_async.telemetry.status import RunStatus

PLAIN_EVERY_S = 5.0

_MOST_CHARS = 4000
"""Of a line, which may quote a program."""


class Display(Protocol):
    """Shows states and single lines; never raises for what a status holds."""

    def start(self) -> None:
        """Begin to show."""

    def show(self, status: RunStatus) -> None:
        """Show the newest state."""

    def say(self, line: str) -> None:
        """Show one line that stays."""

    def stop(self) -> None:
        """Leave the terminal as it was; what was said stays."""


class LiveDisplay:
    """A panel that is drawn in place, about twice a second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def start(self) -> None:
        """See `Display`."""
        self._live.start()

    def show(self, status: RunStatus) -> None:
        """See `Display`."""
        self._live.update(panel(status), refresh=True)

    def say(self, line: str) -> None:
        """See `Display`."""
        self._console.print(clean(line, _MOST_CHARS), markup=False, highlight=False)

    def stop(self) -> None:
        """See `Display`."""
        self._live.stop()


class PlainDisplay:
    """One line every few seconds, only when it says something new."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""
        self._next_s = 0.0

    def start(self) -> None:
        """See `Display`."""

    def show(self, status: RunStatus) -> None:
        """See `Display`."""
        now = time.monotonic()
        if now < self._next_s:
            return
        line = plain_line(status)
        if line != self._last:
            self._last = line
            self._next_s = now + PLAIN_EVERY_S
            self.say(line)

    def say(self, line: str) -> None:
        """See `Display`."""
        self._console.print(clean(line, _MOST_CHARS), markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        """See `Display`."""


def make_display(console: Console) -> Display:
    """The panel on a terminal, plain lines in a file or pipe."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)

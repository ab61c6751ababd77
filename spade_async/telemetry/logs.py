"""One log format for every process of a run; configured once per process, never on import.

Messages quote programs and replies, and `supervisor/death.py` reads logs to say why a part died. So
a message is one line whatever it quotes, and so is the last line of a traceback; only frames of our
own code begin others.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)
"""What a terminal obeys, turns a line around, or cannot be written; new lines and tabs are none."""


_BETWEEN = re.compile(r"\n[A-Z][^\n]*:\n\n")
"""What stands between two tracebacks of a chain."""


class PlainFormatter(logging.Formatter):
    """Writes what a terminal would obey, and new lines, as Python does."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # logging's name
        """The record's first line, and its only one but for a traceback."""
        return _joined(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # logging's name
        """A traceback, each exception of it in one line."""
        pieces = traceback.TracebackException(*ei).format()
        return "".join(
            piece if piece.startswith('  File "') or _BETWEEN.fullmatch(piece)
            else f"{_joined(piece)}\n"
            for piece in pieces
        ).rstrip("\n")  # fmt: skip

    def format(self, record: logging.LogRecord) -> str:
        """The record's text, its traceback included."""
        return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], super().format(record))


def _joined(text: str) -> str:
    return text.rstrip("\n").replace("\n", "\\n")


def configure(name: str, level: int = logging.INFO) -> None:
    """Send the log of this process to stderr, each line tagged with the part's name.

    The supervisor has already pointed stderr at ``logs/NAME.log``.

    Args:
        name: "coordinator", "gen-0", "learner".
        level: lowest level that is written.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(f"%(asctime)s {name} %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python would print itself, new lines of the message and all."""
    logging.getLogger().critical("not caught", exc_info=(kind, error, trace))


def _uncaught_in_thread(found: threading.ExceptHookArgs) -> None:
    name = "" if found.thread is None else found.thread.name
    if found.exc_value is not None:
        logging.getLogger().critical(
            "not caught in thread %s",
            name,
            exc_info=(found.exc_type, found.exc_value, found.exc_traceback),
        )

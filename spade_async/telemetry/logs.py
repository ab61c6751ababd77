"""One log format for every process of a run; configured once per process, never on import."""

from __future__ import annotations

import logging
import re
import sys

_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)
"""What a terminal obeys, turns a line around, or cannot be written; new lines and tabs are none."""


class PlainFormatter(logging.Formatter):
    """Writes what a terminal would obey as Python does: messages quote programs and replies."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's text, its traceback included."""
        return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], super().format(record))


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

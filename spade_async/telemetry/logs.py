"""One log format for every process of a run; configured once per process, never on import."""

from __future__ import annotations

import logging
import sys


def configure(name: str, level: int = logging.INFO) -> None:
    """Send the log of this process to stderr, each line tagged with the part's name.

    The supervisor has already pointed stderr at ``logs/NAME.log``.

    Args:
        name: "coordinator", "gen-0", "learner".
        level: lowest level that is written.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(f"%(asctime)s {name} %(levelname)s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)

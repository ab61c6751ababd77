"""What a process that makes a model does beside making it: progress lines, leaving when told."""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from spade_async.disk.model_cache import Progress
from spade_async.errors import SpadeError

_PR_SET_PDEATHSIG = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that `prepare.prepare_by` gives to every maker."""
    parser.add_argument(
        "--progress-json", action="store_true", help='print lines {"fraction", "text"}'
    )
    parser.add_argument(
        "--end-with-parent", action="store_true", help="stop when the parent process ends"
    )


def run(given: argparse.Namespace, work: Callable[[Progress], Path]) -> Path | int:
    """Do the work; its folder, or the exit status of what went wrong (said in one line)."""
    signal.signal(signal.SIGTERM, _leave)
    if given.end_with_parent:
        _end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)

    def progress(fraction: float, text: str) -> None:
        if given.progress_json:
            say(json.dumps({"fraction": round(fraction, 4), "text": text}))
        else:
            say(f"{fraction:4.0%} {text}")

    try:
        return work(progress)
    except SpadeError as fault:
        say(f"error: {fault}")
        return 1
    except KeyboardInterrupt:
        return 130


def say(line: str) -> None:
    """Print one line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, so that nothing half-made stays."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent or parent == 1:
        sys.exit(1)


def _leave(signum: int, frame: FrameType | None) -> None:
    """Unwind, which removes the folder in the making; once is enough."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signum)

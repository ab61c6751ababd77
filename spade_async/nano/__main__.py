"""``python -m spade_async.nano``: make the nano model (or find it) and print its folder."""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import signal
import sys
from types import FrameType

from spade_async.errors import SpadeError
from spade_async.nano.cache import WarmStartSize, make

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Parse the arguments, make the model, print the folder as the last line."""
    default = WarmStartSize()
    parser = argparse.ArgumentParser(prog="python -m spade_async.nano", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the warm start")
    parser.add_argument("--steps", type=int, default=default.steps, help="optimiser steps")
    parser.add_argument("--programs", type=int, default=default.programs, help="per step")
    parser.add_argument("--answers", type=int, default=default.answers, help="per step")
    parser.add_argument(
        "--progress-json", action="store_true", help='print lines {"fraction", "text"}'
    )
    parser.add_argument(
        "--measure", action="store_true", help="print validity and accuracies of the model"
    )
    parser.add_argument(
        "--end-with-parent", action="store_true", help="stop when the parent process ends"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    if given.end_with_parent:
        _end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    size = WarmStartSize(given.steps, given.programs, given.answers)

    def progress(fraction: float, text: str) -> None:
        if given.progress_json:
            _say(json.dumps({"fraction": round(fraction, 4), "text": text}))
        else:
            _say(f"{fraction:4.0%} {text}")

    try:
        from spade_async.nano.warm_start import warm_start

        folder = make(given.seed, size, progress, warm_start)
    except SpadeError as fault:
        _say(f"error: {fault}")
        return 1
    except KeyboardInterrupt:
        return 130
    if given.measure:
        from spade_async.nano.probe import report

        _say(report(folder))
    _say(str(folder))
    return 0


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


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""``python -m spade_async.learner``: started by the supervisor, not by hand."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from spade_async.telemetry.logs import configure
from spade_async.transport import lifeline


def main() -> int:
    """Parse the arguments that every part of a run gets, and run."""
    parser = argparse.ArgumentParser(prog="spade_async.learner", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--name", default="learner")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--lifeline-fd", type=int, default=None)
    arguments = parser.parse_args()
    # Importing torch takes seconds: be killable and watched before that. There is nothing to save
    # yet; `process` puts its own handler in place.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    configure(arguments.name)
    lifeline.watch(arguments.lifeline_fd)
    from spade_async.learner.process import run

    return run(arguments.run_dir, arguments.name, arguments.endpoint)


if __name__ == "__main__":
    sys.exit(main())

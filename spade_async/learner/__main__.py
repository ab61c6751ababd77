"""``python -m spade_async.learner``: started by the supervisor, not by hand."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from spade_async.learner.process import run


def main() -> int:
    """Parse the arguments that every part of a run gets, and run."""
    parser = argparse.ArgumentParser(prog="spade_async.learner", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--name", default="learner")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--lifeline-fd", type=int, default=None)
    arguments = parser.parse_args()
    return run(arguments.run_dir, arguments.name, arguments.endpoint, arguments.lifeline_fd)


if __name__ == "__main__":
    sys.exit(main())

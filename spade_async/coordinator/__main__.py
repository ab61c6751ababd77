"""Entry point of the coordinator process: ``python -m spade_async.coordinator``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """Parse the arguments the supervisor gives and run until the run is over."""
    parser = argparse.ArgumentParser(prog="spade_async.coordinator")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--name", default="coordinator")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--lifeline-fd", type=int, default=None)
    args = parser.parse_args()

    from spade_async.coordinator.process import run

    return run(
        run_dir=args.run_dir,
        name=args.name,
        endpoint=args.endpoint,
        lifeline_fd=args.lifeline_fd,
    )


if __name__ == "__main__":
    sys.exit(main())

"""Entry point of a generator process: ``python -m spade_async.generator``."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path


def main() -> int:
    """Parse the arguments the supervisor gives and run until the run is over."""
    parser = argparse.ArgumentParser(prog="spade_async.generator")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--name", default="gen-0")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--lifeline-fd", type=int, default=None)
    args = parser.parse_args()

    # Nothing runs yet: a stop that comes now is obeyed by leaving.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # torch comes with the process, not with --help.
    from spade_async.generator.process import run

    return run(
        run_dir=args.run_dir,
        name=args.name,
        endpoint=args.endpoint,
        lifeline_fd=args.lifeline_fd,
    )


if __name__ == "__main__":
    sys.exit(main())

"""Entry point of the coordinator process: ``python -m spade_async.coordinator``."""

from __future__ import annotations

import sys

from spade_async.transport.part import begin


def main() -> int:
    """Take the arguments the supervisor gives and run until the run is over."""
    part = begin("coordinator", name="coordinator")
    # Imported late: what it needs takes long, and the part is watched by now.
    from spade_async.coordinator.serve import run

    return run(part)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m spade_async.smollm2``: make the warm-started SmolLM2 (or find it), print its folder.

With ``--steps 0`` it is converted only.
"""

from __future__ import annotations

import argparse
import sys

from spade_async.nano import maker_process
from spade_async.smollm2.cache import Size, make


def main() -> int:
    """Parse the arguments, make the model, print the folder as the last line."""
    default = Size()
    parser = argparse.ArgumentParser(prog="python -m spade_async.smollm2", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the warm start")
    parser.add_argument("--steps", type=int, default=default.steps, help="optimiser steps")
    parser.add_argument("--programs", type=int, default=default.programs, help="per step")
    parser.add_argument("--answers", type=int, default=default.answers, help="per step")
    maker_process.add_arguments(parser)
    given = parser.parse_args()
    size = Size(given.steps, given.programs, given.answers)
    folder = maker_process.run(given, lambda progress: make(given.seed, size, progress))
    if isinstance(folder, int):
        return folder
    maker_process.say(str(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m spade_async.nano``: make the nano model (or find it) and print its folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from spade_async.disk.model_cache import Progress
from spade_async.nano import maker_process
from spade_async.nano.cache import WarmStartSize, make


def main() -> int:
    """Parse the arguments, make the model, print the folder as the last line."""
    default = WarmStartSize()
    parser = argparse.ArgumentParser(prog="python -m spade_async.nano", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the warm start")
    parser.add_argument("--steps", type=int, default=default.steps, help="optimiser steps")
    parser.add_argument("--programs", type=int, default=default.programs, help="per step")
    parser.add_argument("--answers", type=int, default=default.answers, help="per step")
    parser.add_argument(
        "--measure", action="store_true", help="print validity and accuracies of the model"
    )
    maker_process.add_arguments(parser)
    given = parser.parse_args()
    size = WarmStartSize(given.steps, given.programs, given.answers)

    def work(progress: Progress) -> Path:
        from spade_async.nano.warm_start import warm_start

        return make(given.seed, size, progress, warm_start)

    folder = maker_process.run(given, work)
    if isinstance(folder, int):
        return folder
    if given.measure:
        from spade_async.nano.probe import report

        maker_process.say(report(folder))
    maker_process.say(str(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())

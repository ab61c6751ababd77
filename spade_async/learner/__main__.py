"""Entry point of the learner process: ``python -m spade_async.learner``."""

from __future__ import annotations

import sys

from spade_async.config.load import load_resolved
from spade_async.learner.launch import die_with_parent, is_rank, launch, rank
from spade_async.transport.part import begin


def main() -> int:
    """Take the arguments the supervisor gives and run until the run is over."""
    if is_rank():
        die_with_parent()
    part = begin("learner", name="learner")
    # Imported late: what they need takes long, and the part is watched by now.
    learner = load_resolved(part.run_dir).learner
    if learner.ranks > 1 and learner.kind == "torch" and not is_rank():
        return launch(part, learner.ranks)
    if rank() > 0:
        from spade_async.learner.process import set_up_torch

        set_up_torch(learner.threads)
        from spade_async.learner.followers import follow

        return follow(part)
    from spade_async.learner.process import run

    return run(part)


if __name__ == "__main__":
    sys.exit(main())

"""One checkout's rungs, taken on demand: a line with a rung's key on standard input, its samples as
JSON on standard output. Run as a file, so that it also serves a checkout that does not have it.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benches.ladder import episode, limit, native
from benches.ladder.cpu import Pinned
from benches.ladder.files import room
from benches.ladder.plan import Plan

SECONDS = 1.0
"""Of sustained episodes in one turn."""


def rungs(stack: ExitStack, plan: Plan) -> dict[str, Callable[[], Sequence[float]]]:
    """The ladder's rungs of the jail itself by key, and CPU milliseconds of an episode."""

    def episodes(variant: str) -> Callable[[], Sequence[float]]:
        return lambda: [episode.rate(variant, plan, SECONDS)["cpu_ms_per_episode"]]

    rows = [*limit.rows(stack, plan), *native.rows(stack, plan)]
    found = {row.key: row.take for row in rows if row.missing is None}
    return {**found, "episode_cpu_ms.code": episodes("code")}


def main() -> None:
    """Serve until standard input ends."""
    room(4096)
    with Pinned(), ExitStack() as stack:
        takes = rungs(stack, Plan(quick=False))
        print(json.dumps(sorted(takes)), flush=True)
        gc.collect()
        gc.disable()
        for line in sys.stdin:
            samples = takes[line.strip()]()
            print(json.dumps([round(sample, 3) for sample in samples]), flush=True)


if __name__ == "__main__":
    main()

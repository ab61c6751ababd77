"""A process that writes a ledger until it is killed; what it prints was committed before.

Run: ``python -m tests.support.ledger_writer PATH SEED``. Lines: ``sample ID``, ``trained ORDINAL``.
It resumes like a coordinator: a planned batch is consumed first, now and then it falls back.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from spade_async.ledger import BatchRow, BatchSample, Ledger
from spade_async.types import PolicyVersion
from tests.support.ledger_rows import batch_row, group, report, sample, trace

GROUP_SIZE = 4


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def pause(rng: random.Random) -> None:
    """Give a kill the time to fall between two commits."""
    if rng.random() < 0.3:
        time.sleep(0.01)


def train(
    ledger: Ledger,
    rng: random.Random,
    branch: int,
    again: BatchRow | None,
    fresh: list[BatchSample],
) -> None:
    surviving = [row for row in ledger.versions() if not row.is_abandoned]
    step = surviving[-1].version.step + 1
    if again is not None and again.state == "planned":
        ordinal, rows, replays = again.ordinal, list(again.samples), again.replays
    else:
        ordinal = ledger.last_ordinal() + 1
        rows, replays = (list(again.samples), again.ordinal) if again else (fresh, None)
    with ledger.transaction():
        ledger.plan_batch(ordinal, branch, step, rows, replays=replays)
    pause(rng)
    with ledger.transaction(full=True):
        ledger.consume_batch(ordinal, report(branch, step, [r.sample_id for r in rows]), 1.0)
        ledger.put_state("steps", ordinal)
    say("trained", ordinal)


def main(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger.open(path, create=not path.exists(), config_digest="c")
    versions = ledger.versions()
    branch = versions[-1].version.branch + 1 if versions else 0
    surviving = [row for row in versions if not row.is_abandoned]
    with ledger.transaction(full=True):
        if surviving and rng.random() < 0.5:
            # The newest checkpoints did not survive: fall back a few steps.
            surviving = surviving[: -rng.randrange(1, 4)] or surviving[:1]
            ledger.undo_after(surviving[-1].ordinal)
        step = surviving[-1].version.step if surviving else 0
        ledger.add_version(
            ledger.last_ordinal(), PolicyVersion(branch, step), "d", "shm", None, 1.0
        )
    number = 0
    while True:
        name = f"{seed}-{number}"
        number += 1
        with ledger.transaction():
            ledger.add_group(group(name, members=GROUP_SIZE))
        samples = [f"{name}-{index}" for index in range(GROUP_SIZE)]
        with ledger.transaction():
            for sample_id in samples:
                ledger.add_sample(sample(sample_id, name), trace(50))
            ledger.set_group_state(name, "ready")
        for sample_id in samples:
            say("sample", sample_id)
        pause(rng)
        unfinished = ledger.unfinished_batches()
        again = unfinished[0] if unfinished else None
        train(ledger, rng, branch, again, [batch_row(s, name) for s in samples])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

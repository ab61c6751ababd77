"""A writer killed at random instants leaves a ledger in which every told fact stands, once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from spade_async.ledger import Ledger
from tests.support.ledger_writer import GROUP_SIZE

ROOT = Path(__file__).resolve().parents[2]
KILLS = 10


def run_until_killed(path: Path, seed: int, after_lines: int, more_s: float) -> list[list[str]]:
    """Lines it managed to print; killed a moment after the given number of them."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.ledger_writer", str(path), str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(after_lines)]
    time.sleep(more_s)
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    return [line.split() for line in lines if line.endswith("\n")]


def test_kill_9_of_the_writer_loses_nothing_and_trains_nothing_twice(tmp_path):
    rng = random.Random(7)
    path = tmp_path / "ledger.sqlite"
    told: set[str] = set()
    trained = 0
    for seed in range(KILLS):
        lines = run_until_killed(path, seed, rng.randrange(1, 40), rng.random() * 0.02)
        told |= {words[1] for words in lines if words[0] == "sample"}
        trained = max([trained, *(int(words[1]) for words in lines if words[0] == "trained")])
        with Ledger.open(path, create=False, config_digest="c") as ledger:
            check(ledger, told, trained)
    assert len(told) > 2 * KILLS


def check(ledger: Ledger, told: set[str], trained: int) -> None:
    stored = list(ledger.iterate_samples())
    assert len({row.sample_id for row in stored}) == len(stored)
    assert told <= {row.sample_id for row in stored}
    assert all(ledger.trace(row.sample_id) is not None for row in stored)
    assert ledger.last_ordinal() >= trained
    assert (ledger.trained_twice(), ledger.lost()) == (0, 0)
    batches = {batch.ordinal: batch for batch in ledger.batches()}
    consumed = [batch for batch in batches.values() if batch.state == "consumed"]
    # No half-marked consumption: marks, batches, groups, versions, steps and state agree.
    marked = {row.sample_id: row.trained_ordinal for row in stored if row.trained_ordinal}
    assert marked == {row.sample_id: b.ordinal for b in consumed for row in b.samples}
    assert len(marked) == GROUP_SIZE * len(consumed)
    steps = [batch.step for batch in sorted(consumed, key=lambda b: b.ordinal)]
    assert steps == list(range(1, len(steps) + 1))
    assert [row.step for row in ledger.steps()] == steps
    groups = {row.group_id for row in stored if row.trained_ordinal}
    states = {g: ledger.group(g).state for g in {row.group_id for row in stored}}
    assert {g for g, state in states.items() if state == "trained"} == groups
    assert ledger.get_state("steps", 0) == max(
        (row.ordinal for row in ledger.steps(with_abandoned=True)), default=0
    )
    # Every finished sample can still be trained: it is trained, planned, to be replayed or free.
    planned = ledger.planned_batch()
    reserved = {row.sample_id for b in ledger.replay_queue() for row in b.samples}
    reserved |= {row.sample_id for row in planned.samples} if planned else set()
    free = {row.group_id for row in ledger.open_groups()}
    for row in stored:
        assert row.sample_id in marked or row.sample_id in reserved or row.group_id in free

"""A batch of which no sample can be trained: named with its reasons, skipped, nothing lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from spade_async.coordinator.fruitless import EMPTY_BATCHES
from spade_async.errors import ProcessFailure
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from tests.support.scripted_run import ScriptedGenerator
from tests.unit.coordinator.test_loop import Run, check_invariants, small


class DullGenerator(ScriptedGenerator):
    """The first designs are all rejected (each is paid the same), or all as `dull` makes them."""

    def __init__(self, num_dull: int, dull: dict[str, object]) -> None:
        super().__init__(validity=1.0, missing=0.0)
        self.num_dull = num_dull
        self.dull = dull

    def _design(self, task: m.DesignTask) -> m.DesignResult:
        found = super()._design(task)
        self.num_dull -= 1
        if self.num_dull < 0:
            return found
        rejection = {"stage": "load", "reason": "no", "outcome": "exception"}
        return dataclasses.replace(found, rejection=rejection, **self.dull)  # type: ignore[arg-type]


SAME_PAY: dict[str, object] = {}
SILENT: dict[str, object] = {"loss_mask": np.zeros(4, np.uint8)}
CONFIG = {
    "learner": {"zero_variance": "skip"},
    "train": {"steps": 4},
    "async": {"staleness": 0},
}
"""Bound 0: a step takes what was made for it, and nothing better."""


def told(run: Run) -> list[str]:
    lines = run.folder.alerts.read_text().splitlines()
    return [a["text"] for a in map(json.loads, lines) if a["kind"] == "empty_batch"]


def test_an_empty_batch_is_named_and_counted_and_the_run_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small(**CONFIG))
    run.go(generator=DullGenerator(24, SAME_PAY))
    assert [b.step for b in run.batches] == [1, 2, 3, 4]
    assert "no sample of its 2 groups can be trained (8 x zero variance" in told(run)[0]
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert ledger.get_state("counters")["batches_empty"] == 3
        rows = ledger.query("SELECT unused_reason FROM samples WHERE unused_reason IS NOT NULL", ())
        # Every one of them is in the ledger with its reason: nothing is lost.
        assert sum("zero variance" in row[0] for row in rows) >= 24


def test_samples_without_tokens_are_named_and_the_run_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small(**CONFIG))
    run.go(generator=DullGenerator(24, SILENT))
    assert [b.step for b in run.batches] == [1, 2, 3, 4]
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        rows = ledger.query(
            "SELECT unused_reason, missing_reason FROM samples WHERE num_trained_tokens = 0"
            " AND role = 'designer'",
            (),
        )
        assert len(rows) == 24
        assert all(unused or missing for unused, missing in rows), rows


def test_a_run_of_empty_batches_ends_with_the_reason(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small(**CONFIG))
    with pytest.raises(ProcessFailure, match=f"{EMPTY_BATCHES} batches in a row.*zero variance"):
        run.go(generator=DullGenerator(1_000_000, SAME_PAY))
    assert not run.batches
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert ledger.get_state("counters")["batches_empty"] == EMPTY_BATCHES

"""Near copies of what is remembered: not played, paid as one too many, with the reason kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from spade_async.grounding.signature import minhash
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from tests.support.scripted_run import ScriptedGenerator
from tests.unit.coordinator.test_loop import Run, check_invariants, small

KINDS = 12
"""Shapes that the scripted designer knows."""


class Shaped(ScriptedGenerator):
    """Programs of one kind are near copies; of different kinds, nothing alike."""

    def _design(self, task: m.DesignTask) -> m.DesignResult:
        result = super()._design(task)
        if result.rejection is not None or result.missing_reason is not None:
            return result
        kind = int(result.source.split("T")[1].split("Env")[0])
        features = np.arange(400, dtype=np.uint32) + np.uint32(10_000 * kind)
        return dataclasses.replace(result, signature=minhash(features))


def test_copies_cost_no_episode_and_are_paid_like_one_too_many(tmp_path: Path) -> None:
    designer = {"novelty_penalty": 0.3, "plays_per_skeleton": 64}
    run = Run(tmp_path / "run", small(designer=designer, train={"steps": 5}))
    run.go(generator=Shaped(missing=0.0))
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        copies = ledger.query(
            "SELECT sample_id, reward, outcome, rejection_stage FROM samples"
            " WHERE detail LIKE 'near copy of environment %'"
        )
        played = ledger.query(
            "SELECT p.group_id FROM groups p WHERE p.kind = 'play' AND p.group_id IN"
            " (SELECT sample_id || '.play' FROM samples WHERE detail LIKE 'near copy%')"
        )
        remembered = ledger.query("SELECT COUNT(*) FROM memory")[0][0]
        told = sum(row.metrics.get("designer/copies_refused", 0.0) for row in ledger.steps())
    assert copies, "twelve shapes are soon used up"
    assert {(row[1], row[2], row[3]) for row in copies} == {(-0.3, "finished", None)}
    assert played == []
    assert remembered <= KINDS
    assert 0 < told <= len(copies)


def test_after_a_kill_a_copy_is_still_one(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small(designer={"plays_per_skeleton": 64}, train={"steps": 5}))
    for attempt in range(2):
        run.go(attempt, dies_after=90, generator=Shaped(missing=0.0))
    run.go(9, generator=Shaped(missing=0.0))
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        rows = ledger.query(
            "SELECT COUNT(*), SUM(reward IS NULL) FROM samples WHERE detail LIKE 'near copy%'"
        )
        refused = ledger.get_state("counters")
    assert rows[0][0] > 0
    assert rows[0][1] == 0, refused

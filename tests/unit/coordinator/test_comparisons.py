"""Baselines and compatibility in a whole loop of scripted parts."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from spade_async.ledger import LedgerReader
from spade_async.transport.messages import TrainingBatch
from tests.unit.coordinator.test_delayed_pay import delayed, pays
from tests.unit.coordinator.test_loop import Run, check_invariants, small


def values(ledger: LedgerReader, batch: TrainingBatch) -> dict[str, float]:
    rows = {name: ledger.sample(name) for name in batch.sample_ids}
    return {
        name: row.reward if row.role == "designer" else row.episode_return
        for name, row in rows.items()
        if row is not None
    }


def test_groups_without_variance_can_be_left_out(tmp_path: Path) -> None:
    config = small(learner={"zero_variance": "skip"}, train={"steps": 4})
    run = Run(tmp_path / "run", config)
    run.go()
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        for batch in run.batches:
            found = values(ledger, batch)
            for group in set(batch.groups):
                of = [found[s] for s, g in zip(batch.sample_ids, batch.groups, strict=True)
                      if g == group]  # fmt: skip
                assert len(set(of)) > 1
        (left,) = ledger.query(
            "SELECT COUNT(*) FROM samples WHERE unused_reason LIKE 'zero variance%'"
        )
    assert left[0] > 0


def test_designs_are_centred_over_their_skill_in_the_step(tmp_path: Path) -> None:
    reward = {"baseline": "skill_mean", "scale": "reference", "scale_interval": 2}
    designer = {"group_size": 4, "groups_per_step": 2, "reward": reward}
    run = Run(tmp_path / "run", small(designer=designer, train={"steps": 5}))
    run.go()
    check_invariants(run)
    checked = 0
    with LedgerReader.open(run.folder.ledger) as ledger:
        for batch in run.batches:
            found = values(ledger, batch)
            is_design = np.array([role == "designer" for role in batch.roles])
            if not is_design.any():
                continue
            names = [s for s, d in zip(batch.sample_ids, is_design, strict=True) if d]
            level = fmean(found[name] for name in names)
            factor = min((~is_design).sum() / len(names) * 2, 50.0)
            expected = [(found[name] - level) * factor for name in names]
            assert batch.advantages[is_design].tolist() == pytest.approx(expected, abs=1e-5)
            checked += 1
    assert checked


def test_a_delayed_run_in_compatibility_mode_fills_gaps_as_the_reference_does(
    tmp_path: Path,
) -> None:
    config = delayed(run={"compat": "reference"})
    run = Run(tmp_path / "run", config)
    run.go()
    check_invariants(run)
    assert len(run.batches) == 12
    with LedgerReader.open(run.folder.ledger) as ledger:
        found = pays(ledger)
        assert found
        assert all(row.raw is not None for row in found), "the reference has no missing value"
        masked = [row for row in found if row.raw is not None and row.raw < 0.0]
        for row in masked:
            sample = ledger.sample(row.sample_id)
            assert sample is not None
            assert (sample.reward, sample.trained_ordinal) == (None, None)
            assert sample.unused_reason == "masked: its blend is below 0"
        (rejected,) = ledger.query(
            "SELECT COUNT(*) FROM samples WHERE rejection_stage IS NOT NULL"
            " AND trained_ordinal IS NOT NULL"
        )
    assert masked
    assert rejected[0] == 0, "the reference trains no invalid program"

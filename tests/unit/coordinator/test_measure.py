"""What the coordinator measures of an environment is in the ledger, with faults and errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spade_async.coordinator.core import CUT
from spade_async.coordinator.window import StepWindow
from spade_async.ledger import Ledger, LedgerReader, RegretRow
from spade_async.regret import estimate
from spade_async.transport import messages as m
from spade_async.types import RegretClass
from tests.support.ledger_rows import old_ledger
from tests.support.scripted_run import ScriptedGenerator
from tests.unit.coordinator.test_loop import Run, check_invariants, small

REASONS = ["ours: engine", "environment: timed_out in step 1", CUT]


class FaultyArm(ScriptedGenerator):
    """The second seed of every play fails in one arm; with the hint 1, without it 0."""

    def __init__(self, arm: str, reason: str, *, wrong_tags: bool = False) -> None:
        super().__init__(missing=0.0, validity=1.0)
        self._arm, self._reason, self._wrong_tags = arm, reason, wrong_tags

    def _episode(self, task: m.PlayTask, index: int) -> m.EpisodeResult:
        result = super()._episode(task, index)
        value = float(task.arm == "with_hint")
        result = dataclasses.replace(result, episode_return=value, missing_reason=None)
        if task.arm != self._arm or index != 1:
            return result
        if self._wrong_tags:
            return dataclasses.replace(result, versions=result.versions * 0 + 5)
        return dataclasses.replace(result, episode_return=None, missing_reason=self._reason)


@pytest.mark.parametrize("arm", ["with_hint", "no_hint"])
@pytest.mark.parametrize("reason", [*REASONS, "wrong tags"])
def test_a_fault_in_either_arm_takes_its_pair_and_is_named_in_the_ledger(
    tmp_path: Path, arm: str, reason: str
) -> None:
    overrides = {"train": {"steps": 2}, "agent": {"seeds_per_environment": 4}}
    # All planned pairs are played: what a class decided early saves is test_blocks.py's.
    overrides["regret"] = {"early_class": False}
    run = Run(tmp_path / "run", small(**overrides))
    wrong_tags = reason == "wrong tags"
    run.go(generator=FaultyArm(arm, reason, wrong_tags=wrong_tags))
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        rows = ledger.regrets()
        assert rows
        for row in rows:
            assert (row.regret, row.standard_error) == (1.0, 0.0)
            assert (row.num_planned, row.num_played, row.num_pairs) == (4, 4, 3)
            assert (row.mean_with_hint, row.mean_no_hint) == (1.0, 0.0)
            (named,) = row.missing
            assert named.startswith(f"{arm}: {'ours: wrong tags' if wrong_tags else reason}")
            assert row.missing[named] == 1
            assert ledger.regret_of_group(row.group_id) == row
            estimates = ledger.environment(row.environment_id).estimate
            assert estimates["standard_error"] == 0.0


def test_the_step_shows_the_mean_error_and_bound_of_what_was_scored() -> None:
    window = StepWindow()
    assert "regret/standard_error" not in window.flush()
    found = estimate([(1.0, 0.0), (1.0, 1.0)], leak_share=0.0, mastered_at=0.9, out_of_reach_at=0.1)
    window.estimate(found)
    flushed = window.flush()
    assert flushed["regret/standard_error"] == pytest.approx(0.5)
    assert flushed["regret/lower_bound"] == found.lower_bound
    assert flushed["regret/stopped_share"] == 0.0


ROW = RegretRow(
    group_id="g", environment_id="e", skill="s", step=3, regret=0.5, standard_error=None,
    lower_bound=-0.5, paid_regret=0.4, mean_with_hint=1.0, mean_no_hint=0.5,
    regret_class=RegretClass.FRONTIER, num_planned=8, num_played=2, num_pairs=1, is_stopped=True,
    missing={"no_hint: ours: x": 1},
)  # fmt: skip


def test_a_ledger_of_schema_two_gets_the_table_and_reads_as_empty_before(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    old_ledger(path, 2)
    with LedgerReader.open(path) as reader:
        assert (reader.regrets(), reader.regret_of_group("g")) == ([], None)
    with Ledger.open(path, create=False, config_digest="c") as ledger:
        with ledger.transaction():
            ledger.add_regret(ROW)
        assert ledger.regrets("e") == [ROW]
        assert ledger.regrets("other") == []

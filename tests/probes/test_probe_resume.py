"""Probes of resuming: what a restart must not ask for again, burst into, or train twice.

Rows 3 and 48 of docs/probes.md; rows 50 and 51 are named there with their tests.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spade_async.coordinator.core import CUT
from spade_async.coordinator.process import Coordinator
from spade_async.transport import messages as m
from spade_async.types import Arm
from tests.support.probe_world import FaultyGenerator, ProbeRun


def loses_some_episodes(answer: m.Message) -> list[m.Message]:
    """One in five play tasks never gives its first unhinted episode."""
    lost = (
        isinstance(answer, m.EpisodeResult)
        and answer.purpose == "train"
        and answer.index == 0
        and sum(map(ord, answer.task_id)) % 5 == 0
    )
    return [] if lost else [answer]


def cut_ids(coordinator: Coordinator) -> list[str]:
    """Samples that were cut in groups that can still be trained."""
    return [
        cell.sample_id
        for play in coordinator.core.play_groups.values()
        if play.is_ready
        for cell in play.cells[Arm.NO_HINT]
        if cell is not None and cell.missing_reason == CUT
    ]


def test_what_was_cut_is_not_asked_for_again_after_a_resume(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", train={"steps": 20})
    killed = run.go(
        FaultyGenerator(loses_some_episodes, missing=0.0),
        dies_when=lambda coordinator: len(cut_ids(coordinator)) > 0,
    )
    was_cut = cut_ids(killed)
    assert 0 < len(run.batches) < 20
    generator = FaultyGenerator(missing=0.0)
    run.go(generator)
    assert [b.step for b in run.batches][-1] == 20
    run.check()
    trained = {s for batch in run.batches for s in batch.sample_ids}
    for sample_id in was_cut:
        task_id, _, index = sample_id.rpartition(".")
        assert task_id not in generator.asked
        # Its finished siblings are trained without it.
        assert sample_id not in trained
        assert f"{task_id}.{int(index) + 1}" in trained
    rows = dict(run.query("SELECT sample_id, missing_reason FROM samples"))
    assert {rows[sample_id] for sample_id in was_cut} == {CUT}


def test_a_design_that_was_cut_is_not_asked_for_again_after_a_resume(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", train={"steps": 20})

    def loses_first_designs(answer: m.Message) -> list[m.Message]:
        lost = isinstance(answer, m.DesignResult) and answer.task_id.endswith(".0")
        return [] if lost else [answer]

    def is_cut(coordinator: Coordinator) -> list[str]:
        return [
            member.task_id
            for group in coordinator.core.design_groups.values()
            for member in group.members
            if member.missing_reason == CUT
        ]

    killed = run.go(
        FaultyGenerator(loses_first_designs, missing=0.0), dies_when=lambda c: len(is_cut(c)) > 0
    )
    was_cut = is_cut(killed)
    generator = FaultyGenerator(missing=0.0)
    run.go(generator)
    assert [b.step for b in run.batches][-1] == 20
    assert not set(was_cut) & set(generator.asked)
    run.check()


def outstanding(coordinator: Coordinator) -> int:
    """Groups ready, running or promised a place; tasks in flight are capped by credit."""
    counts = coordinator.core.schedule.counts()
    held = ("ready", "running", "reserved")
    return sum(n for name, n in counts.items() if name.rpartition("_")[2] in held)


@pytest.mark.parametrize("step", [3, 12])
def test_a_resume_starts_no_burst_of_work(tmp_path: Path, step: int) -> None:
    """No more is outstanding after a resume than in a run that nothing disturbed."""
    most = {"undisturbed": 0, "resumed": 0}

    def watch(name: str, dies_at: int) -> Callable[[Coordinator], bool]:
        def look(coordinator: Coordinator) -> bool:
            if name in most:
                most[name] = max(most[name], outstanding(coordinator))
            return coordinator.core.step >= dies_at

        return look

    ProbeRun(tmp_path / "undisturbed", train={"steps": 18}).go(dies_when=watch("undisturbed", 99))
    run = ProbeRun(tmp_path / "run", train={"steps": step + 6})
    run.go(dies_when=watch("killed", step))
    assert [b.step for b in run.batches][-1] < step + 6
    run.go(dies_when=watch("resumed", 99))
    assert [b.step for b in run.batches][-1] == step + 6
    agent, designer = run.config.async_.bounds
    assert 0 < most["resumed"] <= (agent + 1) * 10 + (designer + 1) * 2
    assert most["resumed"] <= 1.1 * most["undisturbed"]
    run.check()

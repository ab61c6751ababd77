"""A stop between two checkpoints asks for one more, whatever makes the run stop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spade_async.coordinator.news import News
from spade_async.coordinator.process import Coordinator
from spade_async.errors import ProcessFailure
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from tests.support.fake_hub import FakeHub
from tests.support.scripted_run import ScriptedGenerator, ScriptedLearner, hello
from tests.unit.coordinator.test_loop import Run, check_invariants, small


class Stopped(Run):
    """A run in which something happens once a step is committed."""

    at_step = 6
    coordinator: Coordinator
    learner: ScriptedLearner

    def happens(self) -> None:
        """By default: Ctrl-C."""
        self.coordinator.request_stop()

    def until_stopped(self) -> None:
        self.learner = ScriptedLearner()
        parts = {"learner": self.learner, "gen-0": ScriptedGenerator()}
        self.hub = hub = FakeHub(parts, seed=3)
        self.coordinator = Coordinator(self.config, self.folder, hub)  # type: ignore[arg-type]
        for name in ("learner", "gen-0"):
            hub.say(name, hello(name))
        hub.say("gen-0", m.Credit(tasks=16))
        finish = self.coordinator._finish_step

        def then(report: m.StepReport) -> None:
            finish(report)
            if report.step == self.at_step:
                self.happens()

        self.coordinator._finish_step = then  # type: ignore[method-assign]
        try:
            asyncio.run(asyncio.wait_for(self.coordinator.run(), 60.0))
        finally:
            for batch in self.learner.trained:
                if batch.checkpoint:
                    self.make(f"c-{batch.branch}-{batch.step}")
            for name in self.learner.saved:
                self.make(name)

    def make(self, name: str) -> None:
        (self.folder.checkpoints / name).mkdir(parents=True, exist_ok=True)

    def newest(self) -> tuple[int, str | None]:
        """Step and checkpoint of the newest version in the ledger."""
        with LedgerReader.open(self.folder.ledger) as ledger:
            row = max(ledger.versions(), key=lambda row: row.ordinal)
        return row.version.step, row.checkpoint


@pytest.mark.parametrize("every", [2, 4, 100])
def test_a_stop_saves_the_newest_step_and_a_resume_trains_nothing_again(
    tmp_path: Path, every: int
) -> None:
    run = Stopped(tmp_path / "run", small(checkpoint={"every": every}))
    run.at_step = 5
    run.until_stopped()
    step, checkpoint = run.newest()
    assert step in (5, 6)  # one more may have been in training
    assert checkpoint == f"c-0-{step}"
    assert run.learner.saved == ([checkpoint] if step % every else [])

    first = [b for b in run.learner.trained if b.step <= step]
    run.go(seed=4)
    assert [b.step for b in run.batches] == list(range(step + 1, 13))
    again = {s for b in run.batches for s in b.sample_ids} & {
        s for b in first for s in b.sample_ids
    }
    assert again == set()
    check_invariants(run)


def test_the_end_of_the_steps_asks_for_nothing_more(tmp_path: Path) -> None:
    run = Stopped(tmp_path / "run", small(checkpoint={"every": 5}))
    run.at_step = 13
    run.until_stopped()
    assert run.newest() == (12, "c-0-12")
    assert run.learner.saved == []


def test_a_run_that_cannot_go_on_saves_as_well(tmp_path: Path) -> None:
    class Fatal(Stopped):
        def happens(self) -> None:
            self.coordinator.core.fatal = "9 agent groups in a row came to nothing"

    run = Fatal(tmp_path / "run", small(checkpoint={"every": 100}))
    with pytest.raises(ProcessFailure, match="came to nothing"):
        run.until_stopped()
    step, checkpoint = run.newest()
    assert checkpoint == f"c-0-{step}"


def test_a_learner_that_dies_with_the_stop_is_not_waited_for(tmp_path: Path) -> None:
    class Dies(Stopped):
        def happens(self) -> None:
            super().happens()
            self.hub.kill("learner", lambda message: [])
            news = News("learner", "learner (pid 7) was killed by SIGKILL", None)
            self.coordinator.lives.news.append(news)

    run = Dies(tmp_path / "run", small(checkpoint={"every": 100}))
    run.until_stopped()
    assert run.learner.saved == []
    step, checkpoint = run.newest()
    assert (step, checkpoint) == (6, None)
    run.go(seed=5)
    # Its steps are gone with its memory; their batches are trained again as they were.
    assert [b.step for b in run.batches] == list(range(1, 13))
    check_invariants(run)

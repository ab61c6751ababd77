"""The coordinator's loops against scripted peers: no sockets, no engine, no jail."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator.process import Coordinator
from spade_async.ledger import STILL_OUT, LedgerReader, TaskTime
from spade_async.transport import messages as m
from tests.support.fake_hub import FakeHub, ProcessDied
from tests.support.scripted_run import ScriptedGenerator, ScriptedLearner, hello


def small(**overrides: Any) -> Config:
    """A small run of scripted parts."""
    data: dict[str, Any] = {
        "train": {"steps": 12},
        "designer": {"group_size": 4, "groups_per_step": 2},
        "agent": {"seeds_per_environment": 2, "groups_per_step": 10},
        "eval": {"every": 5, "instances_per_level": 4},
        "grounding": {"max_document_words": 30},
    }
    for key, value in overrides.items():
        data[key] = {**data.get(key, {}), **value}
    return Config.model_validate(data)


class Run:
    """A run folder and what its scripted learners were given, over resumes."""

    def __init__(self, root: Path, config: Config, **generator: float) -> None:
        root.mkdir(exist_ok=True)
        self.folder = RunFolder(root)
        self.folder.info.write_text(json.dumps({"model_folder": "m"}))
        self.config = config
        self.generator = generator
        self.batches: list[m.TrainingBatch] = []

    def go(
        self,
        seed: int = 0,
        *,
        dies_after: int | None = None,
        generator: ScriptedGenerator | None = None,
    ) -> FakeHub:
        """Run to the end, or until the coordinator dies after so many deliveries."""
        learner = ScriptedLearner()
        generator = generator or ScriptedGenerator(**self.generator)
        hub = FakeHub({"learner": learner, "gen-0": generator}, seed)
        hub.dies_after = dies_after
        coordinator = Coordinator(self.config, self.folder, hub)  # type: ignore[arg-type]
        for name in ("learner", "gen-0"):
            hub.say(name, hello(name))
        hub.say("gen-0", m.Credit(tasks=16))
        try:
            asyncio.run(coordinator.run())
        except ProcessDied:
            coordinator.core.ledger.close()
        finally:
            self.batches += learner.trained
            for batch in learner.trained:
                if batch.checkpoint:
                    name = f"c-{batch.branch}-{batch.step}"
                    (self.folder.checkpoints / name).mkdir(parents=True, exist_ok=True)
        return hub

    def bounds(self) -> dict[str, int]:
        agent, designer = self.config.async_.bounds
        return {"agent": agent, "designer": designer}


def check_invariants(run: Run) -> None:
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert ledger.trained_twice() == 0
        assert ledger.lost() == 0
        assert ledger.over_bound(run.bounds()) == 0
        state = ledger.get_state("counters")
        assert state.get("samples_over_bound", 0) == 0
        assert state.get("tokens_discarded_for_age", 0) == 0


@pytest.mark.parametrize("staleness", [None, 0, 1, 3])
def test_run_reaches_its_last_step_within_every_bound(
    tmp_path: Path, staleness: int | None
) -> None:
    overrides = {} if staleness is None else {"async": {"staleness": staleness}}
    run = Run(tmp_path / "run", small(**overrides))
    run.go()
    assert [b.step for b in run.batches] == list(range(1, 13))
    check_invariants(run)


def test_bound_zero_trains_only_samples_of_the_present_version(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small(**{"async": {"staleness": 0}}))
    run.go()
    for batch in run.batches:
        versions = batch.versions[batch.loss_mask == 1]
        assert (versions == batch.step - 1).all()
        assert batch.staleness_max == 0


@pytest.mark.parametrize("validity", [0.0, 0.3, 1.0])
def test_run_goes_on_whatever_share_of_designs_is_valid(tmp_path: Path, validity: float) -> None:
    run = Run(tmp_path / "run", small(), validity=validity)
    run.go()
    assert len(run.batches) == 12
    check_invariants(run)


def test_hinted_episodes_are_never_trained(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small())
    run.go()
    trained = {s for batch in run.batches for s in batch.sample_ids}
    assert trained
    assert not [s for s in trained if "with_hint" in s]


def test_results_are_acknowledged_only_after_their_commit(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small())
    hub = run.go(dies_after=300)
    with LedgerReader.open(run.folder.ledger) as ledger:
        for message in hub.acked:
            if isinstance(message, m.DesignResult):
                assert ledger.sample(message.task_id) is not None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("every", [1, 4])
def test_kill_at_any_delivery_loses_nothing_and_trains_nothing_twice(
    tmp_path: Path, seed: int, every: int
) -> None:
    run = Run(tmp_path / "run", small(checkpoint={"every": every}))
    for attempt in range(7):
        # Deaths come late and early, also while earlier batches are being repeated.
        run.go(seed * 31 + attempt, dies_after=(150 + 97 * seed) // (1 + attempt % 3))
    run.go(seed)
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        steps = [row.step for row in ledger.steps()]
        assert steps == list(range(1, 13))
        rows = ledger.versions()
        assert len({row.version for row in rows}) == len(rows)
        if every == 1:
            assert not ledger.get_state("counters").get("lost_to_rollback", 0)


def test_no_sample_is_in_two_batches_of_an_undisturbed_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small())
    run.go()
    counts = Counter(s for batch in run.batches for s in batch.sample_ids)
    assert max(counts.values()) == 1


def test_times_of_every_result_and_step_are_written_down(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", small(), missing=0.0)
    run.go()
    with LedgerReader.open(run.folder.ledger) as ledger:
        tasks, steps = ledger.task_times(), ledger.step_times()
        kinds = {group.group_id: group.kind for group in map(ledger.group, _groups(tasks)) if group}
        num_samples = len(list(ledger.iterate_samples()))
        still_out = ledger.get_state(STILL_OUT)
    # Every task was answered, or is on the list of those that were not.
    assert not still_out.keys() & {task.task_id for task in tasks if task.kind == "design"}
    assert {task.kind for task in tasks} == {"design", "play", "pool"}
    assert all(task.kind == kinds[task.group_id] for task in tasks)
    assert len(tasks) == num_samples
    for task in tasks:
        assert task.generator == "gen-0"
        assert task.dispatched_unix_s <= task.finished_unix_s
        assert task.finished_unix_s - task.started_unix_s == pytest.approx(0.5, abs=1e-6)
        assert (task.engine_s, task.queue_s, task.num_tokens) == (0.25, 0.125, 3)
        assert (task.arm == "") == (task.kind == "design")
    assert [step.ordinal for step in steps] == list(range(1, 13))
    for step, batch in zip(steps, run.batches, strict=True):
        assert step.num_samples == len(batch.sample_ids)
        assert step.num_tokens == int(batch.loss_mask.sum())
        assert step.busy_s == 0.01
        instants = [step.taken_unix_s, step.trained_unix_s]
        instants += [t for t in (step.published_unix_s, step.loaded_unix_s) if t is not None]
        assert instants == sorted(instants)
    assert sum(step.loaded_unix_s is not None for step in steps) >= 6


def _groups(tasks: list[TaskTime]) -> set[str]:
    return {task.group_id for task in tasks}


def test_a_divergence_beyond_the_table_and_a_masked_step_are_told_by_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ScriptedLearner._report
    metrics = {"learner/kl_generator": 9.0, "learner/skipped": 1.0}
    monkeypatch.setattr(
        ScriptedLearner,
        "_report",
        lambda self, batch: dataclasses.replace(plain(self, batch), metrics=metrics),
    )
    run = Run(tmp_path / "run", small(train={"steps": 3}))
    run.go()
    alerts = [json.loads(line) for line in run.folder.alerts.read_text().splitlines()]
    kinds = Counter(alert["kind"] for alert in alerts)
    assert kinds["divergence"] == 1
    assert kinds["update_skipped"] >= 1
    (told,) = (alert for alert in alerts if alert["kind"] == "divergence")
    assert told["text"].startswith("step 3: learner/kl_generator was above")
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert ledger.get_state("counters")["updates_skipped"] == 3

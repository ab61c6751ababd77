"""A coordinator with scripted parts in one event loop, and faults to put into them.

The parts answer at once (`scripted_run.py`), the link delivers in random order (`fake_hub.py`); a
probe says what is lost, late, doubled or wrong, and when the coordinator is killed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator.process import Coordinator
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from spade_async.transport.hub import Received
from tests.support.fake_hub import Answer, FakeHub, ProcessDied
from tests.support.scripted_run import ScriptedGenerator, ScriptedLearner, hello

LIMIT_S = 10.0
"""A probe's run has ended by then, or has failed with a name."""


def probe_config(**overrides: Any) -> Config:
    """A small run of scripted parts; what is late is cut after 1.5 s."""
    data: dict[str, Any] = {
        "domain": {"hook": "tests.support.probe_domain"},
        "train": {"steps": 6},
        "designer": {"group_size": 4, "groups_per_step": 2},
        "agent": {"seeds_per_environment": 4, "groups_per_step": 10},
        "eval": {"every": 1000, "instances_per_level": 4},
        "grounding": {"max_document_words": 30},
        "async": {"straggler_s": 1.5},
        # Probes count whole groups; pairs in blocks meet faults in test_blocks.py.
        "regret": {"early_class": False},
    }
    for key, value in overrides.items():
        data[key] = {**data.get(key, {}), **value}
    return Config.model_validate(data)


class FaultyGenerator(ScriptedGenerator):
    """Scripted, with answers that a probe changes (`alter`: what is sent for one answer)."""

    def __init__(
        self,
        alter: Callable[[m.Message], list[m.Message]] = lambda answer: [answer],
        **options: float,
    ) -> None:
        super().__init__(**options)
        self.alter = alter
        self.asked: list[str] = []
        """Task ids in order of arrival."""

    def __call__(self, message: m.Message) -> list[m.Message]:
        if isinstance(message, m.PlayTask | m.DesignTask):
            self.asked.append(message.task_id)
        return [sent for answer in super().__call__(message) for sent in self.alter(answer)]


class ProbeHub(FakeHub):
    """Dies when a probe says so; a run that goes on for ever fails the probe."""

    dies_when: Callable[[Coordinator], bool] = staticmethod(lambda coordinator: False)
    coordinator: Coordinator | None = None
    deadline_s = float("inf")

    def receive_nowait(self) -> Received | None:
        if self.coordinator is not None and self.dies_when(self.coordinator):
            raise ProcessDied
        # Not by cancelling: a loop that is never idle would not notice.
        if time.monotonic() > self.deadline_s:
            pytest.fail(f"still runs: {self.coordinator and self.coordinator.core.waits_for}")
        return super().receive_nowait()


class ProbeRun:
    """A run folder over several starts, each with parts of its own."""

    def __init__(self, root: Path, **overrides: Any) -> None:
        root.mkdir()
        self.folder = RunFolder(root)
        self.folder.info.write_text(json.dumps({"model_folder": "m"}))
        # Ten documents: the data end in every probe, and nothing slow is read.
        corpus = root.parent / "corpus.jsonl"
        corpus.write_text("".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(10)))
        overrides["grounding"] = {"corpus": str(corpus), **overrides.get("grounding", {})}
        self.config = probe_config(**overrides)
        self.batches: list[m.TrainingBatch] = []
        self.seconds = 0.0

    def go(
        self,
        generator: Answer | None = None,
        *,
        learner: ScriptedLearner | None = None,
        seed: int = 0,
        dies_when: Callable[[Coordinator], bool] | None = None,
        credit: int = 16,
        limit_s: float = LIMIT_S,
    ) -> Coordinator:
        """Start or resume and run to the end, or until the coordinator dies."""
        learner = learner or ScriptedLearner()
        hub = ProbeHub({"learner": learner, "gen-0": generator or FaultyGenerator()}, seed)
        began_s = time.monotonic()
        try:
            hub.deadline_s = began_s + limit_s
            return asyncio.run(
                asyncio.wait_for(self._run(hub, dies_when, credit), limit_s + LIMIT_S)
            )
        finally:
            self.seconds = time.monotonic() - began_s
            self.batches += learner.trained
            for batch in learner.trained:
                if batch.checkpoint:
                    name = f"c-{batch.branch}-{batch.step}"
                    (self.folder.checkpoints / name).mkdir(parents=True, exist_ok=True)

    async def _run(
        self, hub: ProbeHub, dies_when: Callable[[Coordinator], bool] | None, credit: int
    ) -> Coordinator:
        coordinator = Coordinator(self.config, self.folder, hub)  # type: ignore[arg-type]
        hub.coordinator = coordinator
        if dies_when is not None:
            hub.dies_when = dies_when
        for name in ("learner", "gen-0"):
            hub.say(name, hello(name))
        hub.say("gen-0", m.Credit(tasks=credit))
        try:
            await coordinator.run()
        except ProcessDied:
            coordinator.core.ledger.close()
        return coordinator

    def query(self, sql: str) -> list[Any]:
        """Rows of the ledger."""
        with LedgerReader.open(self.folder.ledger) as ledger:
            return [tuple(row) for row in ledger.query(sql)]

    def check(self) -> dict[str, int]:
        """What must hold at every end; gives the counters."""
        agent, designer = self.config.async_.bounds
        with LedgerReader.open(self.folder.ledger) as ledger:
            assert ledger.trained_twice() == 0
            assert ledger.lost() == 0
            assert ledger.over_bound({"agent": agent, "designer": designer}) == 0
            counters: dict[str, int] = ledger.get_state("counters")
        assert counters.get("samples_over_bound", 0) == 0
        assert counters.get("tokens_discarded_for_age", 0) == 0
        return counters

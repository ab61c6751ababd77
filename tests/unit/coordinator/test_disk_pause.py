"""The coordinator on a full disk: takes nothing, says so, goes on, and loses nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator import disk as module
from spade_async.coordinator.process import Coordinator
from spade_async.disk.ballast import NAME
from spade_async.ledger import LedgerReader
from spade_async.telemetry.status import read_status
from spade_async.transport import messages as m
from tests.support.fake_hub import FakeHub
from tests.support.scripted_run import ScriptedGenerator, ScriptedLearner, hello

CONFIG = {
    "train": {"steps": 6},
    "designer": {"group_size": 4, "groups_per_step": 1},
    "agent": {"seeds_per_environment": 2, "groups_per_step": 6},
    "eval": {"every": 6, "instances_per_level": 2},
}


def run(root: Path, learner: ScriptedLearner, look: Callable[[FakeHub], None]) -> RunFolder:
    root.mkdir()
    folder = RunFolder(root)
    folder.info.write_text(json.dumps({"model_folder": "m"}))
    hub = FakeHub({"learner": learner, "gen-0": ScriptedGenerator()}, 0)
    look(hub)
    coordinator = Coordinator(Config.model_validate(CONFIG), folder, hub)  # type: ignore[arg-type]
    for name in ("learner", "gen-0"):
        hub.say(name, hello(name))
    hub.say("gen-0", m.Credit(tasks=16))
    asyncio.run(coordinator.run())
    return folder


@pytest.mark.parametrize("full_at", [1, 12, 20])
def test_a_full_disk_pauses_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    looks, acked_while_full, ballast = 0, [], []
    the_hub: list[FakeHub] = []
    folder = RunFolder(tmp_path / "run")

    def free(path: Path) -> int:
        nonlocal looks
        looks += 1
        if full_at <= looks < full_at + 30:
            acked_while_full.append(len(the_hub[0].acked))
            ballast.append((folder.root / NAME).exists())
            return 1 << 20
        return 1 << 30

    monkeypatch.setattr(module, "free_bytes", free)
    learner = ScriptedLearner()
    run(folder.root, learner, the_hub.append)
    assert looks > full_at + 30
    assert len(set(acked_while_full)) == 1
    # The first look finds it full; then its room is given up.
    assert ballast == [True] + [False] * (len(ballast) - 1)
    assert [batch.step for batch in learner.trained] == list(range(1, 7))
    with LedgerReader.open(folder.ledger) as ledger:
        assert (ledger.lost(), ledger.trained_twice()) == (0, 0)
    kinds = [json.loads(line)["kind"] for line in folder.alerts.read_text().splitlines()]
    assert kinds == ["disk_full", "disk_room"]


def test_a_status_that_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spade_async.coordinator.process.write_status", refuse)
    learner = ScriptedLearner()
    folder = run(tmp_path / "run", learner, lambda hub: None)
    assert [batch.step for batch in learner.trained] == list(range(1, 7))
    assert read_status(folder.status) is None


def test_a_learner_that_waits_for_room_is_named(tmp_path: Path) -> None:
    def beats(hub: FakeHub) -> None:
        for state, waits_for in (("disk_full", "room on the disk for weights 0.1"), ("idle", "")):
            hub.say(
                "learner",
                m.Heartbeat(
                    name="learner", state=state, waits_for=waits_for, progress=1,
                    oldest_wait_s=0.0, metrics={},
                ),
            )  # fmt: skip
        hub._random.randrange = lambda n: 0  # type: ignore[method-assign] # in order

    folder = run(tmp_path / "run", ScriptedLearner(), beats)
    told = [json.loads(line) for line in folder.alerts.read_text().splitlines()]
    assert [(a["kind"], a["text"]) for a in told] == [
        ("disk_full", "learner waits for room on the disk for weights 0.1"),
        ("disk_room", "learner found room on the disk and goes on"),
    ]

"""What the learner says and in which order, over a link made of two queues."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from spade_async.config.schema import Config
from spade_async.disk.manifest import damage
from spade_async.errors import EXIT_REFUSED
from spade_async.learner import process as learner_process
from spade_async.transport.link import Received
from spade_async.transport.messages import (
    CheckpointSaved,
    Heartbeat,
    Message,
    ProcessFailed,
    SaveCheckpoint,
    StepReport,
    Stop,
    TrainingBatch,
    WeightsPublished,
    Welcome,
)
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_batch, random_samples

torch.set_num_threads(1)

CONFIG = Config.model_validate({"weights": {"location": "run_folder"}})


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


class FakePeer:
    """Delivers a script: each message once `events` holds what it waits for."""

    def __init__(self, resume: dict[str, Any], script: list[tuple[str | None, Message]]):
        self.welcome = Welcome(resume=resume)
        self.events: list[str] = []
        self.sent: list[Message] = []
        self._script = list(script)
        self._happened = asyncio.Event()

    async def receive(self) -> Received:
        while not self._script or self._script[0][0] not in (None, *self.events):
            self._happened.clear()
            await self._happened.wait()
        _, message = self._script.pop(0)
        return Received("coordinator", message, lambda: self._note("ack", message))

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self._note("send", message)

    def post(self, message: Message) -> None:
        assert isinstance(message, Heartbeat)

    async def flush(self, timeout_s: float) -> bool:
        self.events.append("flush")
        return True

    async def close(self) -> None:
        self.events.append("close")

    def _note(self, verb: str, message: Message) -> None:
        step = f" {message.step}" if isinstance(message, StepReport | TrainingBatch) else ""
        self.events.append(f"{verb} {type(message).__name__}{step}")
        self._happened.set()


def run(
    monkeypatch: pytest.MonkeyPatch,
    run_dir: Path,
    model_folder: Path,
    script: list[tuple[str | None, Message]],
) -> tuple[int, FakePeer]:
    resume = {"branch": 0, "step": 0, "checkpoint": None, "model_folder": str(model_folder)}
    peer = FakePeer(resume, script)

    async def connect(*_: object) -> FakePeer:
        return peer

    monkeypatch.setattr(learner_process.Peer, "connect", connect)
    monkeypatch.setattr("torch.set_num_interop_threads", lambda _: None)
    work = learner_process.serve_run(CONFIG, run_dir, "learner", "tcp://127.0.0.1:1")
    return asyncio.run(asyncio.wait_for(work, 30)), peer


def batch(step: int, branch: int = 0) -> TrainingBatch:
    return make_batch(random_samples(4, seed=step), step, branch=branch)


STOP = Stop(reason="enough", finish=True)


def test_a_batch_is_acknowledged_after_its_report_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Path
) -> None:
    status, peer = run(
        monkeypatch,
        tmp_path,
        model_folder,
        [(None, batch(1)), (None, batch(2)), ("ack TrainingBatch 2", STOP)],
    )
    assert status == 0
    assert peer.events == [
        "send WeightsPublished",
        "send StepReport 1",
        "ack TrainingBatch 1",
        "send StepReport 2",
        "ack TrainingBatch 2",
        "ack Stop",
        "flush",
        "close",
    ]
    assert isinstance(peer.sent[0], WeightsPublished)


def test_after_stop_a_waiting_batch_is_neither_trained_nor_acknowledged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Path
) -> None:
    # All three are there before the model is loaded.
    script = [(None, batch(1)), (None, batch(2)), (None, STOP)]
    status, peer = run(monkeypatch, tmp_path, model_folder, script)
    assert status == 0
    assert not any("TrainingBatch" in event for event in peer.events)
    assert peer.events[-2:] == ["flush", "close"]


def test_the_last_checkpoint_is_saved_after_the_batches_before_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Path
) -> None:
    plain = [dataclasses.replace(batch(step), checkpoint=False) for step in (1, 2)]
    save = SaveCheckpoint(branch=0, step=2)
    script = [*((None, b) for b in plain), (None, save), ("ack SaveCheckpoint", STOP)]
    status, peer = run(monkeypatch, tmp_path, model_folder, script)
    assert status == 0
    assert peer.events[-6:-3] == [
        "ack TrainingBatch 2", "send CheckpointSaved", "ack SaveCheckpoint",
    ]  # fmt: skip
    saved = peer.sent[-1]
    assert saved == CheckpointSaved(branch=0, step=2, checkpoint="branch-0-step-2")
    assert damage(tmp_path / "checkpoints" / "branch-0-step-2") is None
    facts = json.loads((tmp_path / "checkpoints/branch-0-step-2/learner_state.json").read_text())
    assert facts["step"] == 2


@pytest.mark.parametrize("finish", [True, False])
def test_stop_while_idle_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Path, finish: bool
) -> None:
    stop = dataclasses.replace(STOP, finish=finish)
    status, _ = run(monkeypatch, tmp_path, model_folder, [("send WeightsPublished", stop)])
    assert status == 0


def test_a_learner_that_cannot_load_says_why_and_exits_with_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, peer = run(monkeypatch, tmp_path, tmp_path / "nowhere", [])
    assert status == EXIT_REFUSED
    (failed,) = peer.sent
    assert isinstance(failed, ProcessFailed)
    assert (failed.name, failed.boundary) == ("learner", "WeightsError")
    assert "nowhere has no config.json: check model.path" in failed.message
    assert peer.events == ["send ProcessFailed", "flush", "close"]


def test_a_batch_that_does_not_follow_ends_the_process_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Path
) -> None:
    status, peer = run(monkeypatch, tmp_path, model_folder, [(None, batch(5))])
    assert status == 1
    failed = peer.sent[-1]
    assert isinstance(failed, ProcessFailed)
    assert "batch 0.5 does not follow the learner's version 0.0" in failed.message
    assert "ack TrainingBatch 5" not in peer.events

"""The learner as a real process, with the real link; the test plays the coordinator."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spade_async.config.load import dump_resolved
from spade_async.config.schema import Config
from spade_async.transport.lifeline import EXIT_SUPERVISOR_LOST
from spade_async.transport.link import Hub
from spade_async.transport.messages import (
    Heartbeat,
    Hello,
    Message,
    StepReport,
    Stop,
    TrainingBatch,
    WeightsPublished,
    Welcome,
)
from spade_async.types import PolicyVersion
from spade_async.weights.store import load_weights
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import make_batch, random_samples

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


@dataclass
class FakeCoordinator:
    """Answers Hello, keeps what comes in, acknowledges everything."""

    hub: Hub
    process: subprocess.Popen[bytes]
    lifeline: int
    heartbeats: list[Heartbeat] = field(default_factory=list)

    async def wait_for(self, kind: type[Message], *, ack: bool = True) -> Any:
        while True:
            received = await asyncio.wait_for(self.hub.receive(), 60)
            if ack:
                received.ack()
            if isinstance(received.message, Heartbeat):
                self.heartbeats.append(received.message)
            if isinstance(received.message, kind):
                return received.message

    async def welcome(self, **resume: Any) -> None:
        await self.wait_for(Hello)
        await self.hub.send("learner", Welcome(resume=resume))

    async def exit_status(self) -> int:
        # The hub keeps running, so that the learner's last messages are acknowledged.
        deadline_s = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline_s:
            while (received := self.hub.receive_nowait()) is not None:
                received.ack()
            await asyncio.sleep(0.02)
        return self.process.wait(timeout=1)


def spawn(run_dir: Path, endpoint: str, lifeline_fd: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spade_async.learner", "--run-dir", str(run_dir)]
    command += ["--name", "learner", "--endpoint", endpoint, "--lifeline-fd", str(lifeline_fd)]
    return subprocess.Popen(command, pass_fds=(lifeline_fd,), start_new_session=True)


@asynccontextmanager
async def started(run_dir: Path, **learner: object) -> AsyncIterator[FakeCoordinator]:
    config = Config.model_validate(
        {"learner": {"lr": 1e-2, **learner}, "weights": {"location": "run_folder"}}
    )
    dump_resolved(config, run_dir)
    hub = Hub("tcp://127.0.0.1:*", config.link)
    await hub.start()
    read_end, write_end = os.pipe()
    process = spawn(run_dir, hub.endpoint, read_end)
    os.close(read_end)
    coordinator = FakeCoordinator(hub, process, write_end)
    try:
        yield coordinator
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if coordinator.lifeline >= 0:
            os.close(coordinator.lifeline)
        await hub.close()


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 110))  # type: ignore[arg-type]


def batch(step: int, *, branch: int = 0, checkpoint: bool = True, count: int = 8) -> TrainingBatch:
    return make_batch(random_samples(count, seed=step), step, branch=branch, checkpoint=checkpoint)


def test_a_run_of_the_learner_from_welcome_to_stop_and_its_resume(
    tmp_path: Path, model_folder: Path
) -> None:
    reports: list[StepReport] = []

    async def first_life() -> None:
        async with started(tmp_path) as coordinator:
            await coordinator.welcome(
                branch=0, step=0, checkpoint=None, model_folder=str(model_folder)
            )
            published = await coordinator.wait_for(WeightsPublished)
            assert published.version == PolicyVersion(0, 0).packed
            load_weights(published.location, published.digest)
            for step in (1, 2):
                await coordinator.hub.send("learner", batch(step))
                reports.append(await coordinator.wait_for(StepReport))
            # The same batch as a new message (a coordinator that lost the report).
            await coordinator.hub.send("learner", batch(2))
            again = await coordinator.wait_for(StepReport)
            assert (again.step, again.digest) == (2, reports[-1].digest)
            await coordinator.wait_for(Heartbeat)
            await coordinator.hub.send("learner", Stop(reason="enough", finish=True))
            assert await coordinator.exit_status() == 0
            assert {h.state for h in coordinator.heartbeats} <= {
                "starting",
                "idle",
                "working",
                "stopping",
            }

    async def second_life() -> None:
        async with started(tmp_path) as coordinator:
            await coordinator.welcome(
                branch=1,
                step=1,
                checkpoint="branch-0-step-1",
                keep_checkpoints=["branch-0-step-1"],
                model_folder=str(model_folder),
            )
            published = await coordinator.wait_for(WeightsPublished)
            assert published.version == PolicyVersion(1, 1).packed
            await coordinator.hub.send("learner", batch(2, branch=1))
            report = await coordinator.wait_for(StepReport)
            # Same weights, same batch, same bits: only the version in the file differs.
            old = load_weights(reports[1].location, reports[1].digest)
            new = load_weights(report.location, report.digest)
            assert all((old[name] == new[name]).all() for name in old)
            # The supervisor is killed: the learner leaves at once.
            os.close(coordinator.lifeline)
            coordinator.lifeline = -1
            assert await coordinator.exit_status() == EXIT_SUPERVISOR_LOST

    play(first_life)
    assert [r.checkpoint for r in reports] == ["branch-0-step-1", "branch-0-step-2"]
    play(second_life)


def test_sigterm_leaves_in_the_middle_of_a_step(tmp_path: Path, model_folder: Path) -> None:
    async def scenario() -> None:
        async with started(tmp_path, micro_batch_tokens=20) as coordinator:
            await coordinator.welcome(
                branch=0, step=0, checkpoint=None, model_folder=str(model_folder)
            )
            await coordinator.wait_for(WeightsPublished)
            await coordinator.hub.send("learner", batch(1, count=3000))  # many seconds of work
            while True:
                beat = await coordinator.wait_for(Heartbeat)
                if beat.state == "working":
                    break
            before = beat.progress
            beat = await coordinator.wait_for(Heartbeat)
            assert beat.progress > before
            coordinator.process.send_signal(signal.SIGTERM)
            assert await coordinator.exit_status() == 0
            assert not (tmp_path / "checkpoints").exists()

    play(scenario)

"""The learner as a real process, with the real link; the test plays the coordinator."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade_async.config.load import dump_resolved
from spade_async.config.schema import Config
from spade_async.transport.link import Hub
from spade_async.transport.messages import Heartbeat, Hello, Message, TrainingBatch, Welcome
from tests.support.train_samples import make_batch, random_samples


@dataclass
class FakeCoordinator:
    """Answers Hello, keeps what comes in, acknowledges everything."""

    hub: Hub
    process: subprocess.Popen[bytes]
    lifeline: int
    heartbeats: list[Heartbeat] = field(default_factory=list)
    patience_s: float = 60.0

    async def wait_for(self, kind: type[Message], *, ack: bool = True) -> Any:
        while True:
            received = await asyncio.wait_for(self.hub.receive(), self.patience_s)
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


def play(scenario: Callable[[], Awaitable[None]], timeout_s: float = 110) -> None:
    asyncio.run(asyncio.wait_for(scenario(), timeout_s))  # type: ignore[arg-type]


def batch(step: int, *, branch: int = 0, checkpoint: bool = True, count: int = 8) -> TrainingBatch:
    return make_batch(random_samples(count, seed=step), step, branch=branch, checkpoint=checkpoint)

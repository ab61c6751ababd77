"""A learner of two ranks under torchrun, seen from outside: one part that lives and dies as one."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from spade_async.supervisor.processes import descendants
from spade_async.transport.messages import Heartbeat, StepReport, Stop, WeightsPublished
from spade_async.types import PolicyVersion
from spade_async.weights.store import load_weights
from tests.support.learner_process import FakeCoordinator, batch, play, started
from tests.support.tiny_model import make_tiny_llama

pytestmark = pytest.mark.timeout(600)

PATIENCE_S = 240.0


def ranks_of(coordinator: FakeCoordinator) -> list[int]:
    """Pids below torchrun, rank 0 first."""
    pids = [p.pid for p in descendants(coordinator.process.pid)]

    def rank(pid: int) -> int:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next((int(e[5:]) for e in environment if e.startswith(b"RANK=")), -1)

    return sorted((p for p in pids if rank(p) >= 0), key=rank)


async def gone(pids: list[int]) -> None:
    deadline_s = time.monotonic() + 60
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline_s, "a rank outlived torchrun"
        await asyncio.sleep(0.1)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_two_ranks_live_and_die_as_one_part_and_resume(tmp_path: Path) -> None:
    model = make_tiny_llama(tmp_path / "model")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    checkpoint = ""

    async def until_a_follower_dies() -> None:
        nonlocal checkpoint
        async with started(run_dir, ranks=2) as coordinator:
            coordinator.patience_s = PATIENCE_S
            await coordinator.welcome(branch=0, step=0, checkpoint=None, model_folder=str(model))
            published = await coordinator.wait_for(WeightsPublished)
            load_weights(published.location, published.digest)
            await coordinator.hub.send("learner", batch(1))
            report = await coordinator.wait_for(StepReport)
            assert (report.applied, report.checkpoint) == (True, "branch-0-step-1")
            checkpoint = report.checkpoint
            load_weights(report.location, report.digest)
            AutoModelForCausalLM.from_pretrained(run_dir / "checkpoints" / checkpoint)
            await coordinator.wait_for(Heartbeat)
            pids = ranks_of(coordinator)
            assert len(pids) == 2
            os.kill(pids[1], signal.SIGKILL)
            assert await coordinator.exit_status() == 1
            await gone(pids)

    async def until_torchrun_is_killed() -> None:
        async with started(run_dir, ranks=2) as coordinator:
            coordinator.patience_s = PATIENCE_S
            while len(pids := ranks_of(coordinator)) < 2:
                assert coordinator.process.poll() is None
                await asyncio.sleep(0.1)
            coordinator.process.kill()
            await gone(pids)

    async def until_it_is_told_to_stop() -> None:
        async with started(run_dir, ranks=2) as coordinator:
            coordinator.patience_s = PATIENCE_S
            await coordinator.welcome(
                branch=1, step=1, checkpoint=checkpoint, model_folder=str(model)
            )
            published = await coordinator.wait_for(WeightsPublished)
            assert published.version == PolicyVersion(1, 1).packed
            await coordinator.hub.send("learner", batch(2, branch=1))
            assert (await coordinator.wait_for(StepReport)).applied
            pids = ranks_of(coordinator)
            await coordinator.hub.send("learner", Stop(reason="enough", finish=True))
            assert await coordinator.exit_status() == 0
            await gone(pids)

    for life in (until_a_follower_dies, until_torchrun_is_killed, until_it_is_told_to_stop):
        play(life, 590)

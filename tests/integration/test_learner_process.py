"""The learner as a real process, with the real link; the test plays the coordinator."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from spade_async.transport.lifeline import EXIT_SUPERVISOR_LOST
from spade_async.transport.messages import (
    Heartbeat,
    StepReport,
    Stop,
    WeightsPublished,
)
from spade_async.types import PolicyVersion
from spade_async.weights.store import load_weights
from tests.support.learner_process import batch, play, started
from tests.support.tiny_model import make_tiny_llama

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


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

"""The generator as a real process: real link, jail, engine and a tiny random model.

The test plays the coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade_async.config.load import dump_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import EXIT_REFUSED
from spade_async.transport.lifeline import EXIT_SUPERVISOR_LOST
from spade_async.transport.link import Hub
from spade_async.transport.messages import (
    Credit,
    DesignResult,
    DesignTask,
    EpisodeResult,
    Heartbeat,
    Hello,
    Message,
    PlayTask,
    Stop,
    WeightsLoaded,
    WeightsPublished,
    Welcome,
)
from spade_async.types import NO_VERSION, PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support import environments
from tests.support.tiny_chat_model import make_chat_model

pytestmark = pytest.mark.timeout(150)
NAME = "gen-0"


@dataclass
class FakeCoordinator:
    hub: Hub
    process: subprocess.Popen[bytes]
    lifeline: int
    run_dir: Path
    heartbeats: list[Heartbeat] = field(default_factory=list)

    async def wait_for(self, kind: type[Message]) -> Any:
        while True:
            received = await asyncio.wait_for(self.hub.receive(), 90)
            received.ack()
            if isinstance(received.message, Heartbeat):
                self.heartbeats.append(received.message)
            if isinstance(received.message, kind):
                return received.message

    async def send(self, message: Message) -> None:
        await self.hub.send(NAME, message)

    async def exit_status(self) -> int:
        deadline_s = time.monotonic() + 40
        while self.process.poll() is None and time.monotonic() < deadline_s:
            while (received := self.hub.receive_nowait()) is not None:
                received.ack()
            await asyncio.sleep(0.02)
        return self.process.wait(timeout=1)

    def publish(self, version: PolicyVersion) -> WeightsPublished:
        """The model's own weights under another version."""
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        folder = json.loads(RunFolder(self.run_dir).info.read_text())["model_folder"]
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
        store = self.run_dir / "weights"
        store.mkdir(exist_ok=True)
        published = FileWeightStore(store).publish(version, dict(model.state_dict()))
        return WeightsPublished(
            version=version.packed, location=published.location, digest=published.digest
        )

    async def welcome(self) -> WeightsPublished:
        hello = await self.wait_for(Hello)
        assert hello.name == NAME
        start = self.publish(PolicyVersion(0, 0))
        resume = {"version": start.version, "location": start.location, "digest": start.digest}
        await self.send(Welcome(resume=resume))
        return start


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chat_model(tmp_path_factory.mktemp("model"))


def spawn(command: list[str], lifeline_fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, pass_fds=(lifeline_fd,), start_new_session=True)


@asynccontextmanager
async def started(run_dir: Path, model: Path) -> AsyncIterator[FakeCoordinator]:
    config = Config.model_validate(
        {
            "domain": {"hook": "tests.support.fixed_domain"},
            "model": {"path": str(model), "max_context_tokens": 200},
            "designer": {"max_new_tokens": 20},
            "agent": {"max_turns": 3, "max_new_tokens_per_turn": 8},
            "sandbox": {"workers": 8, "spares": 2},
            "generator": {"concurrent_tasks": 7},
        }
    )
    dump_resolved(config, run_dir)
    RunFolder(run_dir).info.write_text(json.dumps({"model_folder": str(model)}))
    hub = Hub("tcp://127.0.0.1:*", config.link)
    await hub.start()
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "spade_async.generator", "--run-dir", str(run_dir)]
    command += ["--name", NAME, "--endpoint", hub.endpoint, "--lifeline-fd", str(read_end)]
    process = spawn(command, read_end)
    os.close(read_end)
    coordinator = FakeCoordinator(hub, process, write_end, run_dir)
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
    asyncio.run(asyncio.wait_for(scenario(), 140))  # type: ignore[arg-type]


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # After the name: state, parent, group, session. A child keeps our session unless it leaves.
        if int(fields[1]) == pid or int(fields[3]) == pid:
            found.add(int(status.parent.name))
    return found - {pid}


def design_task(**changes: Any) -> DesignTask:
    values = {
        "task_id": "d-1",
        "group_id": "g",
        "min_version": 0,
        "skill": "sums",
        "document": "",
        "document_id": "",
        "exemplars": [],
        "temperature": 1.0,
        "max_new_tokens": 20,
        "seed": 5,
    }
    return DesignTask(**(values | changes))


def play_task(source: str, **changes: Any) -> PlayTask:
    values = {
        "task_id": "p-1",
        "group_id": "g",
        "environment_id": "e",
        "source": source,
        "hint": None,
        "hint_mode": "environment",
        "arm": "no_hint",
        "seeds": [1, 2, 3, 4],
        "min_version": 0,
        "max_turns": 3,
        "max_new_tokens": 8,
        "temperature": 1.0,
        "purpose": "train",
        "seed": 6,
    }
    return PlayTask(**(values | changes))


def test_a_generator_designs_plays_swaps_weights_and_finishes(
    tmp_path: Path, model_folder: Path
) -> None:
    async def scenario() -> None:
        async with started(tmp_path, model_folder) as run:
            start = await run.welcome()
            loaded = await run.wait_for(WeightsLoaded)
            assert (loaded.version, loaded.digest) == (start.version, start.digest)
            assert (await run.wait_for(Credit)).tasks == 7

            await run.send(design_task())
            design: DesignResult = await run.wait_for(DesignResult)
            assert design.missing_reason is None
            assert design.rejection is None
            assert design.source == environments.MULTI_TURN
            assert design.jail["outcomes"] == {"finished": design.jail["calls"]}
            assert 1 <= design.loss_mask.sum() <= 20

            # An untrained model rarely says its stop token: what it said is kept all the same.
            await run.send(play_task(design.source))
            episodes = [await run.wait_for(EpisodeResult) for _ in range(4)]
            assert sorted(e.index for e in episodes) == [0, 1, 2, 3]
            for episode in episodes:
                assert episode.missing_reason is None
                assert episode.episode_return is not None
                sampled = episode.loss_mask == 1
                assert (episode.versions[sampled] == start.version).all()
                assert (episode.versions[~sampled] == NO_VERSION).all()
                assert (episode.generator_logprobs[sampled] < 0.0).all()
                assert len(episode.token_ids) == len(episode.versions)

            # The same task gives the same tokens again.
            await run.send(play_task(design.source, task_id="p-2"))
            again = [await run.wait_for(EpisodeResult) for _ in range(4)]
            for one in episodes:
                two = next(e for e in again if e.index == one.index)
                assert np.array_equal(one.token_ids, two.token_ids)

            # A task for later weights waits for them.
            later = PolicyVersion(0, 1)
            await run.send(play_task(design.source, task_id="p-3", min_version=later.packed))
            await run.send(play_task(environments.RESET_RAISES, task_id="p-4", seeds=[1]))
            broken = await run.wait_for(EpisodeResult)
            assert broken.task_id == "p-4"
            assert broken.episode_return is None
            assert broken.missing_reason == "environment: exception in reset"
            assert len(broken.token_ids) == 0
            await run.send(run.publish(later))
            assert (await run.wait_for(WeightsLoaded)).version == later.packed
            episode = await run.wait_for(EpisodeResult)
            assert episode.task_id == "p-3"
            assert (episode.versions[episode.loss_mask == 1] == later.packed).all()

            # Figures may be a second old: from before the tasks above.
            while (beat := await run.wait_for(Heartbeat)).metrics.get("tasks_done", 0) < 4:
                pass
            assert beat.state in ("idle", "working")
            assert beat.progress > 0
            assert beat.metrics["jail_calls"] > 0
            assert beat.metrics["tokens"] > 0
            assert beat.metrics["jail_p50_s"] <= beat.metrics["jail_p99_s"]

            await run.send(play_task(design.source, task_id="p-5", seeds=list(range(20))))
            await run.send(Stop(reason="the test is over", finish=True))
            finished = [await run.wait_for(EpisodeResult) for _ in range(20)]
            assert {e.task_id for e in finished} <= {"p-3", "p-5"}
            assert await run.exit_status() == 0

    play(scenario)


@pytest.mark.parametrize("how", ["sigterm", "lifeline"])
def test_a_generator_leaves_at_once_and_takes_its_jail_with_it(
    tmp_path: Path, model_folder: Path, how: str
) -> None:
    async def scenario() -> None:
        async with started(tmp_path, model_folder) as run:
            await run.welcome()
            await run.wait_for(Credit)
            await run.send(play_task(environments.STEP_HANGS, seeds=list(range(8))))
            await run.wait_for(Heartbeat)
            jailers = descendants(run.process.pid)
            if how == "sigterm":
                run.process.send_signal(signal.SIGTERM)
            else:
                os.close(run.lifeline)
                run.lifeline = -1
            assert await run.exit_status() == (EXIT_SUPERVISOR_LOST if how == "lifeline" else 0)
            deadline_s = time.monotonic() + 10
            while any(map(is_there, jailers)):
                assert time.monotonic() < deadline_s, "the jail outlived its generator"
                await asyncio.sleep(0.05)

    play(scenario)


def test_a_sigterm_while_starting_is_obeyed(tmp_path: Path, model_folder: Path) -> None:
    async def scenario() -> None:
        async with started(tmp_path, model_folder) as run:
            await run.wait_for(Hello)
            run.process.send_signal(signal.SIGTERM)
            assert await run.exit_status() == 0

    play(scenario)


def test_a_jail_whose_processes_all_die_is_replaced_and_play_goes_on(
    tmp_path: Path, model_folder: Path
) -> None:
    async def scenario() -> None:
        async with started(tmp_path, model_folder) as run:
            await run.welcome()
            await run.wait_for(Credit)
            for pid in descendants(run.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # What was running is missing with its reason, never a number; what follows is played.
            for attempt in range(5):
                await run.send(play_task(environments.GOOD, task_id=f"p-{attempt}", seeds=[1]))
                episode = await run.wait_for(EpisodeResult)
                if episode.missing_reason is None:
                    break
                assert episode.episode_return is None
            assert episode.missing_reason is None
            assert episode.episode_return is not None
            await run.send(Stop(reason="the test is over", finish=True))
            assert await run.exit_status() == 0

    play(scenario)


def test_a_missing_model_is_one_clear_line(tmp_path: Path, model_folder: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    gone = tmp_path / "gone"
    shutil.copytree(model_folder, gone)
    dump_resolved(Config(), run_dir)
    RunFolder(run_dir).info.write_text(json.dumps({"model_folder": str(gone)}))
    shutil.rmtree(gone)
    command = [sys.executable, "-m", "spade_async.generator", "--run-dir", str(run_dir)]
    done = subprocess.run(
        [*command, "--endpoint", "tcp://127.0.0.1:1"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == EXIT_REFUSED
    assert f"the model folder {gone} does not exist" in done.stderr
    assert "Traceback" not in done.stderr

"""Whatever ends the process that holds the engine: nothing of vLLM lives on or stays behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_async.engine.vllm.left_names import SHARED_MEMORY, sweep
from tests.support.vllm_world import make_model

ROOT = Path(__file__).parents[2]
END_S = 10.0
"""Promised: from the death of the parent to the end of vLLM's processes."""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that samples, and the pids of vLLM's own below it."""
    folder = make_model(tmp_path / "model")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.vllm_script", str(folder)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    pids: list[int] = []
    for line in process.stdout:
        if all(word.isdigit() for word in line.split()):
            pids = [int(word) for word in line.split()]
            break
    assert pids, (tmp_path / "log").read_text()[-3000:]
    yield process, pids
    process.kill()
    process.wait(60)
    process.stdout.close()


def ended(fds: list[int]) -> None:
    """All of these processes are gone within the time that was promised."""
    deadline = time.monotonic() + END_S
    for fd in fds:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(max(0.0, deadline - time.monotonic()) * 1000), "it lives on"
        os.close(fd)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_no_process_of_vllm_outlives_its_parent(
    started: tuple[subprocess.Popen[str], list[int]], signum: signal.Signals
) -> None:
    process, pids = started
    fds = [os.pidfd_open(pid) for pid in pids]
    # The process alone, not its group: a terminal would reach vLLM's as well.
    process.send_signal(signum)
    ended(fds)


def test_what_a_killed_group_left_in_shared_memory_is_removed_by_the_next_sweep(
    started: tuple[subprocess.Popen[str], list[int]],
) -> None:
    """vLLM's process makes a semaphore, and Python's tracker of them is killed as well."""
    process, pids = started
    (listed,) = SHARED_MEMORY.glob(f"spade-async-names-{os.getuid()}-{process.pid}-*")
    entries = [line.split() for line in listed.read_text().splitlines()]
    assert {int(maker) for maker, *_ in entries} <= {process.pid, *pids}
    made = [SHARED_MEMORY / name for _, _, name, _ in entries]
    assert any(path.name.startswith("sem.mp-") and path.exists() for path in made)
    fds = [os.pidfd_open(pid) for pid in pids]
    os.killpg(process.pid, signal.SIGKILL)
    ended(fds)
    process.wait(60)
    assert any(path.exists() for path in made)
    sweep()
    assert not [path for path in [listed, *made] if path.exists()]

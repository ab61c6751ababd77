"""Whatever ends the process that holds the engine: nothing of vLLM lives on."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.vllm_world import make_model

ROOT = Path(__file__).parents[2]
END_S = 10.0
"""Promised: from the death of the parent to the end of vLLM's processes."""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_no_process_of_vllm_outlives_its_parent(tmp_path: Path, signum: signal.Signals) -> None:
    folder = make_model(tmp_path / "model")
    log = (tmp_path / "log").open("w")
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
    fds = [os.pidfd_open(pid) for pid in pids]
    # The process alone, not its group: a terminal would reach vLLM's as well.
    process.send_signal(signum)
    deadline = time.monotonic() + END_S
    for fd in fds:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(max(0.0, deadline - time.monotonic()) * 1000), "it lives on"
        os.close(fd)
    process.wait(60)
    process.stdout.close()
    log.close()

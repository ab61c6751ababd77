"""Where a process stands, on request: stacks of all threads and of the asyncio tasks, in a file.

Signals, because a process that hangs answers nothing else. The stacks of threads are written by C
code that needs no lock of the interpreter; those of tasks need a loop that still turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import time
from pathlib import Path
from typing import IO

THREADS = signal.SIGUSR2
"""Asks for the stacks of all threads."""
TASKS = signal.SIGUSR1
"""Asks for the stacks of the asyncio tasks."""
_MAX_TASKS = 40
_MAX_FRAMES = 6
_ANSWER_S = 1.5
_PROC = Path("/proc")


def answer(path: Path) -> None:
    """Write the stacks of this process to `path` whenever `THREADS` comes; best effort."""
    with contextlib.suppress(OSError, RuntimeError):
        # Open for the life of the process: a hang is no time to open files.
        faulthandler.register(THREADS, file=path.open("ab", buffering=0), all_threads=True)


def answer_tasks(path: Path) -> None:
    """The same for the tasks of the running event loop and `TASKS`."""
    loop = asyncio.get_running_loop()

    def write() -> None:
        with contextlib.suppress(OSError), path.open("a") as sink:
            tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
            sink.write(f"{len(tasks)} asyncio tasks\n")
            for task in tasks[:_MAX_TASKS]:
                _write_task(task, sink)

    loop.add_signal_handler(TASKS, write)


def _write_task(task: asyncio.Task[object], sink: IO[str]) -> None:
    sink.write(f"Task {task.get_name()} (most recent call last):\n")
    for frame in task.get_stack(limit=_MAX_FRAMES):
        code = frame.f_code
        sink.write(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}\n')


def ask(pids: dict[str, int], folder: Path, limit_s: float = _ANSWER_S) -> dict[str, str]:
    """Stacks of some processes of ours, by name; what cannot answer is described from outside.

    Args:
        pids: name -> pid.
        folder: where they write ``NAME.stacks`` (`answer`).
        limit_s: how long to wait for the answers, all together.
    """
    paths = {name: folder / f"{name}.stacks" for name in pids}
    before = {name: _size(path) for name, path in paths.items()}
    for signum in (THREADS, TASKS):
        for pid in pids.values():
            # To a process that does not listen yet the signal would be the end.
            if _catches(pid, signum):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signum)
    time.sleep(limit_s)
    found = {}
    for name, path in paths.items():
        said = ""
        with contextlib.suppress(OSError), path.open("rb") as source:
            source.seek(before[name])
            said = source.read(256 << 10).decode("utf-8", "replace")
        found[name] = f"{_from_outside(pids[name])}\n{said or '(no answer)'}"
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _status(pid: int) -> dict[str, str]:
    try:
        lines = (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _catches(pid: int, signum: int) -> bool:
    caught = int(_status(pid).get("SigCgt", "0"), 16)
    return bool(caught >> (signum - 1) & 1)


def _from_outside(pid: int) -> str:
    """State, threads, memory and the kernel function it sleeps in, as far as that can be read."""
    status = _status(pid)
    if not status:
        return f"pid {pid} is gone"
    try:
        sleeps_in = (_PROC / str(pid) / "wchan").read_text() or "-"
    except OSError:
        sleeps_in = "-"
    return (
        f"pid {pid}, state {status.get('State', '?')}, threads {status.get('Threads', '?')}, "
        f"resident {status.get('VmRSS', '?')}, kernel function {sleeps_in}"
    )

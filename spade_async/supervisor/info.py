"""run.json: what this start of a run is made of, and the processes it has."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from spade_async.config.load import digest
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import RunFolderError
from spade_async.supervisor.folder import read_info
from spade_async.supervisor.processes import facts

_PACKAGES = (
    "spade-async", "torch", "transformers", "pyzmq", "msgpack", "numpy", "pydantic", "tensorboard",
)  # fmt: skip
_OLD_PARTS_WAIT_S = 10.0


def new_info(config: Config, folder: RunFolder) -> dict[str, Any]:
    """Facts of this start; those of earlier starts are kept where they add up."""
    now = time.time()
    before = read_info(folder)
    known = {*before.get("config_digests", []), before.get("config_digest"), digest(config)}
    return {
        "name": config.run.name,
        "seed": config.run.seed,
        "config_digest": digest(config),
        # An earlier version of the program had fewer keys, so another digest of the same values.
        "config_digests": sorted(known - {None}),
        "starts_unix_s": [*before.get("starts_unix_s", []), now],
        "argv": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": _versions(),
        "git_commit": _git_commit(),
        "supervisor_pid": os.getpid(),
        "processes": {},
    }


def identity(pid: int) -> dict[str, int]:
    """Pid and start time, which together name one process for ever."""
    found = facts(pid)
    return {"pid": pid, "start_ticks": found.start_ticks if found else -1}


def wait_for_old_parts(folder: RunFolder) -> None:
    """Let the parts of a killed supervisor go first: the lifeline ends them within moments.

    Raises:
        RunFolderError: one of them still lives after 10 s.
    """
    processes = read_info(folder).get("processes", {})
    deadline = time.monotonic() + _OLD_PARTS_WAIT_S
    while alive := [name for name, known in processes.items() if _is_alive(known)]:
        if time.monotonic() > deadline:
            pid = processes[alive[0]]["pid"]
            raise RunFolderError(
                f"{alive[0]} of an earlier start of {folder.root} still lives (pid {pid}): "
                "end it, then resume"
            )
        time.sleep(0.1)


def _is_alive(known: dict[str, int]) -> bool:
    found = facts(known["pid"])
    return (
        found is not None and found.state not in "ZX" and found.start_ticks == known["start_ticks"]
    )


def _versions() -> dict[str, str | None]:
    """Installed versions, from package metadata: nothing is imported."""
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def _git_commit() -> str | None:
    """Commit of the checkout the program runs from, "-dirty" when changed; None without one."""
    here = Path(__file__).resolve().parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=40",
             "--exclude=*"],
            capture_output=True, text=True, timeout=5, stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None

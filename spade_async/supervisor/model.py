"""The model a run starts from: a folder that is checked, or one made by the domain."""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import ConfigError, ProcessFailure
from spade_async.supervisor.death import how, last_error
from spade_async.supervisor.parts import Lifeline, PartCommand, kill_all, spawn, wait_for
from spade_async.supervisor.signals import Interrupts

_TICK_S = 0.5
CLEAN_UP_S = 4.0
"""Time for the maker to remove what it has begun, when the user asks to stop."""


@dataclass(frozen=True, slots=True)
class ModelProgress:
    """How far the making of a model is."""

    share: float
    """In [0, 1]."""
    text: str


def is_folder(path: str) -> bool:
    """Whether `model.path` names a folder rather than a model of the domain."""
    return os.sep in path or Path(path).is_dir()


def make_model(
    config: Config,
    folder: RunFolder,
    lifeline: Lifeline,
    interrupts: Interrupts,
    on_progress: Callable[[ModelProgress | None], None],
) -> Path | None:
    """Have the domain make the model in a child process.

    Args:
        config: `domain.hook`, `model.path` and `model.warm_start_seed` say what to make.
        folder: the log goes to its logs/model.log.
        lifeline: ends the child with us.
        interrupts: any request to stop ends the making.
        on_progress: called at each report and, with None, about twice a second.

    Returns:
        Folder of the model, or None when the user asked to stop.

    Raises:
        ConfigError: the domain does not know a model of that name.
        ProcessFailure: the child failed; the line names its log.
    """
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    command = PartCommand(
        "model",
        (
            sys.executable, "-m", "spade_async.supervisor.make_model",
            "--hook", config.domain.hook, "--model", config.model.path,
            "--seed", str(config.model.warm_start_seed), "--report-fd", str(write_fd),
        ),
    )  # fmt: skip
    log = folder.logs / "model.log"
    try:
        part = spawn(command, log=log, lifeline=lifeline, pass_fds=(write_fd,))
    finally:
        os.close(write_fd)
    last: dict[str, Any] = {}
    try:
        with selectors.DefaultSelector() as selector, os.fdopen(read_fd, "rb", 0) as reports:
            selector.register(reports, selectors.EVENT_READ)
            selector.register(interrupts.fd, selectors.EVENT_READ)
            pending = b""
            while True:
                on_progress(None)
                ready = {key.fd for key, _ in selector.select(_TICK_S)}
                if interrupts.count:
                    interrupts.drain()
                    if interrupts.count == 1:
                        part.send(signal.SIGTERM)
                        wait_for([part], CLEAN_UP_S)
                    return None
                if reports.fileno() not in ready:
                    continue
                chunk = os.read(reports.fileno(), 65536)
                if not chunk:
                    break
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    last = json.loads(line)
                    if "share" in last:
                        on_progress(ModelProgress(float(last["share"]), str(last["text"])))
        wait_for([part], 30.0)
    finally:
        kill_all([part])
    if "folder" in last and part.returncode == 0:
        if last["folder"] is None:
            raise ConfigError(
                f"model.path={config.model.path!r}: no such folder, and domain.hook="
                f'{config.domain.hook!r} makes no model of that name (it may know "nano")'
            )
        return Path(last["folder"])
    reason = last.get("error") or last_error(log) or how(part.returncode)
    raise ProcessFailure(f"making the model failed: {reason}; see {log}")

"""How every part of a run begins: its arguments, its log, its lifeline, its stacks.

Before anything heavy is imported, so that a part can be stopped and outlives nobody from its first
moment on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.telemetry import logs, stacks
from spade_async.transport import lifeline
from spade_async.transport.endpoint import remove_endpoint
from spade_async.weights.folder import is_left_by, remove_weights_folder, weights_folder


@dataclass(frozen=True, slots=True)
class Part:
    """What the supervisor tells a part."""

    run_dir: Path
    name: str
    """"coordinator", "gen-0", "learner"."""
    endpoint: str

    @property
    def stacks(self) -> Path:
        """Where its stacks go when somebody asks (`telemetry.stacks`)."""
        return RunFolder(self.run_dir).logs / f"{self.name}.stacks"


def begin(kind: str, name: str) -> Part:
    """Read the command line and become a part that can be stopped, watched and asked.

    Args:
        kind: of the part, for the usage line.
        name: when the command line gives none.
    """
    parser = argparse.ArgumentParser(prog=f"spade_async.{kind}")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--name", default=name)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--lifeline-fd", type=int, default=None)
    args = parser.parse_args()
    part = Part(args.run_dir, args.name, args.endpoint)
    # Nothing runs yet: a stop that comes now is obeyed by leaving. The process puts its own handler
    # in place once it has something to save.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.configure(part.name)
    supervisor = os.getppid()
    lifeline.watch(args.lifeline_fd, on_lost=lambda: _remove_places(part, supervisor))
    stacks.answer(part.stacks)
    return part


def _remove_places(part: Part, supervisor: int) -> None:
    """A killed supervisor cannot remove what lies outside the run folder: its parts do."""
    if part.endpoint.startswith("ipc://"):
        remove_endpoint(Path(part.endpoint.removeprefix("ipc://")).parent)
    with contextlib.suppress(Exception):
        folder = weights_folder(load_resolved(part.run_dir), part.run_dir)
        # A next start may have it by now.
        if is_left_by(folder, supervisor):
            remove_weights_folder(folder)

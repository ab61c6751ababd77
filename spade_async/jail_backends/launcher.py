"""How a backend starts its children: the protocol that `ProcessCore` asks, and what all share."""

from __future__ import annotations

import shutil
from typing import Protocol

from spade_async.jail_backends.child import Child, Command
from spade_async.jail_backends.layers import Layers
from spade_async.jail_backends.survey import BOOT, FLAGS, Survey


class Launcher(Protocol):
    """One way to start a child."""

    name: str
    """Name of the backend."""
    probe: str
    """Source of the trusted environment that runs first."""
    num_cpus: int
    """CPUs that a child can use at once: 1 where it cannot start threads or processes."""

    def command(self) -> Command:
        """How to start the next child."""

    def explain(self, said: str) -> str:
        """Why a child could not start, from what it and its supervisor have said."""

    def layers(self, child: Child, report: dict[str, str]) -> Layers:
        """What holds, from a ready child and what the trusted probe inside has tried."""

    def close(self) -> None:
        """Give up what the launcher holds."""


def dies_with_owner() -> list[str]:
    """Start of a command line whose process is killed when the thread that started it ends."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv is not None else []


def interpreter(survey: Survey) -> list[str]:
    """Command line of the interpreter itself."""
    return [survey.executable, *FLAGS, "-c", BOOT]


def note_rlimits(layers: Layers, child: Child, survey: Survey) -> None:
    """Whether the limits that the child was told to set are in force, as the kernel shows them."""
    with open(f"/proc/{child.pid}/limits") as lines:
        shown = {line[:26].strip(): line[26:].split()[:2] for line in lines}
    wanted = {"Max address space": survey.address_space_bytes, "Max core file size": 0,
              "Max file size": 0}  # fmt: skip
    wrong = {k: shown.get(k) for k, v in wanted.items() if shown.get(k) != [str(v)] * 2}
    layers.note("rlimits", not wrong, f"not as set: {wrong}" if wrong else "in force", "")


def note_owner(layers: Layers) -> None:
    """Whether children die when their owner is killed."""
    is_held = bool(dies_with_owner())
    detail = "death signal by setpriv" if is_held else "no setpriv: a killed owner leaves children"
    layers.note("dies_with_owner", is_held, detail, "install util-linux (setpriv)")

"""Backend `subprocess`: plain child processes. No jail: for code that you trust, and to compare."""

from __future__ import annotations

import os

from spade_async.jail_backends.child import Child, Command
from spade_async.jail_backends.launcher import (
    dies_with_owner,
    interpreter,
    note_owner,
    note_rlimits,
)
from spade_async.jail_backends.layers import Layers
from spade_async.jail_backends.probe import HARMLESS
from spade_async.jail_backends.survey import ENVIRONMENT, Survey

_NOTHING = 'the backend "subprocess" does not confine; use backend="native" or "nsjail"'


class PlainLauncher:
    """Starts the interpreter as it is: it can read, write and connect like its owner."""

    name = "subprocess"
    probe = HARMLESS

    num_files = 64

    def __init__(self, survey: Survey) -> None:
        self.num_cpus = os.cpu_count() or 1
        self._survey = survey
        self._command = Command((*dies_with_owner(), *interpreter(survey)), ENVIRONMENT)

    def command(self) -> Command:
        """How to start the next child."""
        return self._command

    def explain(self, said: str) -> str:
        """The last line it has said."""
        return (said.strip().splitlines() or ["it said nothing"])[-1][:500]

    def layers(self, child: Child, report: dict[str, str]) -> Layers:
        """Nothing confines; the limits hold."""
        layers = Layers("none")
        for name in ("seccomp", "namespaces", "files", "network", "identity"):
            layers.note(name, False, "not confined", _NOTHING)
        note_rlimits(layers, child, self._survey)
        note_owner(layers)
        return layers

    def close(self) -> None:
        """Nothing is held."""

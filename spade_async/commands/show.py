"""`spade-async show`: one environment of a run, whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from spade_async.view.environment import look
from spade_async.view.find import find
from spade_async.view.run import opened
from spade_async.view.terminal import environment


def figures(run_dir: Path, name: str, seed: int | None) -> dict[str, Any]:
    """Everything that ``show --json`` prints; errors as of `show`."""
    with opened(run_dir) as run:
        return look(run, find(run, name), seed).as_dict()


def show(run_dir: Path, name: str, *, seed: int | None, as_json: bool, console: Console) -> None:
    """Print an environment.

    Raises:
        ConfigError: not a run folder.
        LedgerError: no readable ledger in it.
        RunFolderError: no such environment or seed.
    """
    if as_json:
        print(json.dumps(figures(run_dir, name, seed), indent=2))
        return
    with opened(run_dir) as run:
        console.print(environment(look(run, find(run, name), seed), console))

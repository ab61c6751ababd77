"""`spade-async show`: one environment of a run, whole."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from spade_async.view.environment import look
from spade_async.view.find import find
from spade_async.view.run import opened
from spade_async.view.terminal import environment


def show(run_dir: Path, name: str, *, seed: int | None, as_json: bool, console: Console) -> None:
    """Print an environment.

    Raises:
        ConfigError: not a run folder.
        LedgerError: no readable ledger in it.
        RunFolderError: no such environment or seed.
    """
    with opened(run_dir) as run:
        found = look(run, find(run, name), seed)
        if as_json:
            print(json.dumps(found.as_dict(), indent=2))
        else:
            console.print(environment(found, console))

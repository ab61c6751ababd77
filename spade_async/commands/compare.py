"""`spade-async compare`: several runs side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from spade_async.commands.report import build_report
from spade_async.errors import RunFolderError
from spade_async.view.compare import compared, of_run
from spade_async.view.run import opened
from spade_async.view.terminal_compare import comparison


def figures(run_dirs: Sequence[Path]) -> dict[str, Any]:
    """Everything that ``compare --json`` prints.

    Raises:
        RunFolderError: fewer than two runs.
        ConfigError: one of them is no run folder.
        LedgerError: one has no readable ledger.
    """
    if len(run_dirs) < 2:
        raise RunFolderError("compare needs at least two runs: spade-async compare RUN RUN")
    found = []
    for run_dir in run_dirs:
        with opened(run_dir) as run:
            found.append(of_run(run, build_report(run_dir)))
    return compared(found)


def compare(run_dirs: Sequence[Path], *, as_json: bool, console: Console) -> None:
    """Print the comparison; see `figures`."""
    found = figures(run_dirs)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        console.print(comparison(found))

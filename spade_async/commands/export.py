"""`spade-async export`: a run's environments as a pool that loads again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from spade_async.errors import RunFolderError
from spade_async.types import RegretClass
from spade_async.view.pool import Choice, choose, write
from spade_async.view.run import opened


def export(
    run_dir: Path,
    folder: Path,
    choice: Choice,
    *,
    licence: str | None,
    replaces: bool,
    as_json: bool,
    console: Console,
) -> None:
    """Write the pool and say what went out and what did not.

    Raises:
        ConfigError: not a run folder.
        LedgerError: no readable ledger in it.
        RunFolderError: nothing to export, an unknown class, or the folder cannot be made.
    """
    known = [kind.value for kind in RegretClass]
    for name in choice.classes:
        if name not in known:
            raise RunFolderError(f"--class {name}: there is {', '.join(known)}")
    with opened(run_dir) as run:
        chosen = choose(run.ledger.environments(origin="designer"), choice)
        if not chosen.rows:
            reasons = ", ".join(f"{n} by {why}" for why, n in sorted(chosen.left_out.items()))
            raise RunFolderError(
                f"{run_dir}: nothing to export ({reasons or 'no designed environment yet'})"
            )
        write(run, chosen, folder, licence=licence, replaces=replaces)
    classes = Counter(str((row.estimate or {})["regret_class"]) for row in chosen.rows)
    said: dict[str, Any] = {
        "folder": str(folder),
        "environments": len(chosen.rows),
        "classes": {name: classes[name] for name in known},
        "left_out": dict(sorted(chosen.left_out.items())),
        "licence": licence,
    }
    if as_json:
        print(json.dumps(said, indent=2))
        return
    for line in _lines(said):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(said: dict[str, Any]) -> list[str]:
    classes = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in said["classes"].items())
    lines = [f"{said['environments']} environments in {said['folder']}, best first: {classes}"]
    if said["left_out"]:
        reasons = ", ".join(f"{n} by {why}" for why, n in said["left_out"].items())
        lines.append(f"left out: {reasons}")
    if said["licence"] is None:
        lines.append("no licence is stated in pool.json: say --licence, e.g. --licence Apache-2.0")
    return lines

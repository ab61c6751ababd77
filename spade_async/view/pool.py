"""A run's environments as a pool: a folder of programs and `pool.json`, best first.

The programs are written byte for byte as the ledger has them, so each file's digest begins with the
environment's id. The folder appears under its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade_async.environment.contract import source_problem
from spade_async.errors import RunFolderError
from spade_async.ledger.rows import EnvironmentRow
from spade_async.view import program_names
from spade_async.view.order import best_first
from spade_async.view.run import ViewedRun

INDEX = "pool.json"
"""A list with one table per program, the best first; by default the file names are in that
order too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which environments go out."""

    classes: tuple[str, ...] = ()
    """Only these; empty is all."""
    min_regret: float | None = None
    """Only with at least this regret (the mean, not its lower bound)."""
    limit: int | None = None
    """At most so many, the best."""
    one_per_skeleton: bool = False
    """Only the best of each shape."""


@dataclass(slots=True)
class Chosen:
    """What goes out, and why the rest does not."""

    rows: list[EnvironmentRow] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def choose(rows: Iterable[EnvironmentRow], choice: Choice) -> Chosen:
    """The best first (`view.order`), filtered; what is damaged is left out by name."""
    chosen = Chosen()
    skeletons: set[str] = set()
    for row in best_first(rows):
        reason = _reason_against(row, choice, skeletons)
        if reason is None and choice.limit is not None and len(chosen.rows) >= choice.limit:
            reason = "--limit"
        if reason is not None:
            chosen.left_out[reason] += 1
            continue
        skeletons.add(row.environment.skeleton)
        chosen.rows.append(row)
    return chosen


def _reason_against(row: EnvironmentRow, choice: Choice, skeletons: set[str]) -> str | None:
    estimate = row.estimate
    if estimate is None:
        return "no regret"
    if source_problem(row.environment.source) is not None:
        return "no program that a pool takes (empty, over 64 KiB, or no Unicode)"
    if not sha256(row.environment.source).startswith(row.environment.environment_id):
        return "source is not what its id says"
    if choice.classes and estimate["regret_class"] not in choice.classes:
        return "--class"
    if choice.min_regret is not None and estimate["regret"] < choice.min_regret:
        return "--min-regret"
    if choice.one_per_skeleton and row.environment.skeleton in skeletons:
        return "--one-per-skeleton"
    return None


def sha256(source: str) -> str:
    """Hex digest of a program's bytes."""
    return hashlib.sha256(_bytes(source)).hexdigest()


def write(
    run: ViewedRun, chosen: Chosen, folder: Path, *, licence: str | None, replaces: bool
) -> None:
    """Write the pool, all or nothing.

    Args:
        run: where the environments are from.
        chosen: which.
        folder: to make.
        licence: of the programs, as the user states it (an SPDX name).
        replaces: put it in the place of a pool (or an empty folder) that is there.

    Raises:
        RunFolderError: the folder is there, is no pool, or cannot be written.
    """
    _check_place(folder, replaces=replaces)
    parents, name_of_run = _parents(run), run.name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            index = []
            for row, name in zip(chosen.rows, _names(run, chosen.rows, parents), strict=True):
                _write(draft / name, _bytes(row.environment.source))
                index.append(_entry(name_of_run, row, name, parents, licence))
            # One program a line: quick to write, and a line-based tool can take some of it.
            lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in index)
            _write(draft / INDEX, f"[\n{lines}\n]\n".encode("utf-8", "backslashreplace"))
            draft.chmod(0o755)
            _put(draft, folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as cause:
        raise RunFolderError(
            f"pool {folder} cannot be written: {cause.strerror or cause}; choose another --out"
        ) from cause


def _names(
    run: ViewedRun, rows: list[EnvironmentRow], parents: dict[str, tuple[str, str]]
) -> list[str]:
    if run.value("run.compat") != "reference":
        return program_names.by_rank(rows)
    skills = [parents.get(row.environment.environment_id, ("", ""))[0] for row in rows]
    return program_names.of_reference(rows, skills)


def _check_place(folder: Path, *, replaces: bool) -> None:
    if not folder.exists() and not folder.is_symlink():
        return
    if not replaces:
        raise RunFolderError(f"{folder} exists already: choose another --out or add --force")
    is_pool = folder.is_dir() and ((folder / INDEX).is_file() or not any(folder.iterdir()))
    if folder.is_symlink() or not is_pool:
        raise RunFolderError(
            f"{folder} is not an exported pool (it has no {INDEX}), so --force does not remove it: "
            "choose another --out"
        )


def _put(draft: Path, folder: Path) -> None:
    """Move a complete draft to its name; what was there goes last."""
    old: Path | None = None
    if folder.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
        os.replace(folder, old)
    try:
        os.replace(draft, folder)
    except OSError:
        if old is not None:
            os.replace(old, folder)
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _entry(
    run: str,
    row: EnvironmentRow,
    name: str,
    parents: dict[str, tuple[str, str]],
    licence: str | None,
) -> dict[str, Any]:
    environment, estimate = row.environment, row.estimate
    assert estimate is not None, "chosen environments have a regret"
    skill, document = parents.get(environment.environment_id, ("", ""))
    return {
        "file": name,
        "environment_id": environment.environment_id,
        "sha256": sha256(environment.source),
        "skill": skill or None,
        "class": estimate["regret_class"],
        "regret": estimate["regret"],
        "regret_se": estimate["standard_error"],
        "num_pairs": estimate["num_pairs"],
        "mean_no_hint": estimate["mean_no_hint"],
        "mean_with_hint": estimate["mean_with_hint"],
        "hint": environment.hint,
        "hint_mode": environment.hint_mode,
        "leak_share": environment.leak_share,
        "labels": dict(environment.labels),
        "skeleton": environment.skeleton,
        "document": document or None,
        "run": run,
        "step": row.created_step,
        "licence": licence,
    }


def _parents(run: ViewedRun) -> dict[str, tuple[str, str]]:
    """Environment id -> (skill, document id) of its newest design."""
    rows = run.ledger.query(
        "SELECT d.environment_id, g.skill, g.document_id FROM designs d"
        " JOIN groups g USING (group_id) ORDER BY d.rowid"
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def _bytes(source: str) -> bytes:
    return source.encode("utf-8", "surrogatepass")


def _write(path: Path, content: bytes) -> None:
    """Write a new file; what a power cut leaves of it is told by the digest in the index."""
    with path.open("xb") as file:
        file.write(content)

"""From what a user types to one environment: an id, the start of one, a design, or a word."""

from __future__ import annotations

import bisect
import difflib

from spade_async.errors import RunFolderError
from spade_async.ledger.rows import EnvironmentRow
from spade_async.view.order import best_first
from spade_async.view.run import ViewedRun

WORDS = ("best", "worst", "latest")
_NAMED = 8
"""Ids that an error lists."""


def find(run: ViewedRun, name: str) -> EnvironmentRow:
    """The environment that `name` means.

    Args:
        run: where.
        name: an id; the start of exactly one; the id of a design sample ("d-0000012.3"); or
            "best", "worst" (`view.order`, of those the designer wrote, with a regret), "latest".

    Raises:
        RunFolderError: none or several are meant; the nearest are named.
    """
    wanted = name.strip()
    if wanted in WORDS:
        return _by_word(run, wanted)
    row = run.ledger.environment(wanted.lower())
    if row is not None:
        return row
    of_design = run.ledger.environment_of_design(wanted)
    row = None if of_design is None else run.ledger.environment(of_design)
    if row is not None:
        return row
    ids = [
        str(r[0]) for r in run.ledger.query("SELECT environment_id FROM environments ORDER BY 1")
    ]
    matches = [] if not wanted else _starting_with(ids, wanted.lower())
    if len(matches) == 1:
        row = run.ledger.environment(matches[0])
        assert row is not None, "environments are never removed"
        return row
    where = run.folder.root
    if matches:
        raise RunFolderError(
            f"{where}: {wanted!r} is the start of {len(matches)} environments "
            f"({_listed(matches)}): write more of it"
        )
    if not ids:
        raise RunFolderError(f"{where} has no environments yet: look again when it has run")
    close = difflib.get_close_matches(wanted.lower(), WORDS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise RunFolderError(
        f"{where} has no environment {wanted!r} among its {len(ids)}: {hint}"
        f"nearest {_listed(_nearest(ids, wanted.lower()))}; or say {', '.join(WORDS)}"
    )


def _by_word(run: ViewedRun, word: str) -> EnvironmentRow:
    known = run.ledger.environments(origin="designer", with_estimate=True)
    if known:
        # `environments` gives the newest first.
        return known[0] if word == "latest" else best_first(known)[0 if word == "best" else -1]
    newest = run.ledger.environments(1)
    if word == "latest" and newest:
        return newest[0]
    if newest:
        raise RunFolderError(
            f"{run.folder.root}: no designed environment has a regret yet, so none is {word}: say "
            "latest, or look again after the first step"
        )
    raise RunFolderError(
        f"{run.folder.root} has no environments yet: look again when it has run for a while"
    )


def _starting_with(ids: list[str], prefix: str) -> list[str]:
    first = bisect.bisect_left(ids, prefix)
    last = bisect.bisect_left(ids, prefix + "￿")
    return ids[first:last]


def _nearest(ids: list[str], wanted: str) -> list[str]:
    """Those that share the longest start; ids are hashes, so nothing else makes them alike."""
    place = bisect.bisect_left(ids, wanted)
    around = ids[max(0, place - 3) : place + 3]
    return sorted(around, key=lambda i: -_num_shared(i, wanted))[:3]


def _num_shared(one: str, other: str) -> int:
    """Characters that two texts share at their start."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - _NAMED} more" * (len(ids) > _NAMED)
    return ", ".join(ids[:_NAMED]) + more

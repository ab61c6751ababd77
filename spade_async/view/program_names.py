"""File names of exported programs: by rank and digest, or as the reference names its games."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from spade_async.ledger.rows import EnvironmentRow

_NO_WORD = re.compile(r"[^a-z0-9]+")


def by_rank(rows: Sequence[EnvironmentRow]) -> list[str]:
    """One name per program, in their order: a listing shows the best first."""
    return [f"{rank:05d}_{row.environment.environment_id}.py" for rank, row in enumerate(rows)]


def of_reference(rows: Sequence[EnvironmentRow], skills: Sequence[str]) -> list[str]:
    """Names as the reference gives them (spade-rl/spade, `game_files.py`), one per program.

    Its "rollout" is the learner step of the design here; the index counts the exported programs of
    that step, the best first.
    """
    seen: Counter[int] = Counter()
    names: list[str] = []
    for row, skill in zip(rows, skills, strict=True):
        names.append(reference_name(row.created_step, seen[row.created_step], skill))
        seen[row.created_step] += 1
    return names


def reference_name(rollout: int, index: int, skill: str) -> str:
    """E.g. ``game_00003_002_logical_deduction.py``; of a skill only letters and digits are kept."""
    slug = _NO_WORD.sub("_", skill.lower()).strip("_")[:64] or "unknown"
    return f"game_{rollout:05d}_{index:03d}_{slug}.py"

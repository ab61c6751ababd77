"""Plays of one environment: which group is shown, its seeds, and both arms of one of them.

The ledger keeps the words of the first seed of each play; of other seeds the returns, and the
unhinted tokens until no fall-back needs them any more (or the words, in newer ledgers).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from spade_async.errors import RunFolderError
from spade_async.ledger.rows import SampleRow
from spade_async.types import Arm
from spade_async.view.run import ViewedRun

ARMS = (Arm.NO_HINT.value, Arm.WITH_HINT.value)


@dataclass(frozen=True, slots=True)
class Shown:
    """One arm of one seed."""

    sample: SampleRow
    observation: str | None
    """First observation; None when the words were not kept."""
    hint: str | None
    turns: list[dict[str, Any]]
    """action, observation, reward of each turn."""

    @property
    def has_words(self) -> bool:
        """Whether the transcript is here."""
        return self.observation is not None


@dataclass(slots=True)
class Play:
    """One play group: its episodes by seed, in the order of the seeds."""

    group_id: str
    kind: str
    state: str
    birth_ordinal: int
    seeds: dict[int, dict[str, SampleRow]] = field(default_factory=dict)
    """seed -> arm -> episode."""

    @property
    def has_both(self) -> bool:
        """Whether some seed has both arms."""
        return any(len(arms) == len(ARMS) for arms in self.seeds.values())


def plays_of(run: ViewedRun, environment_id: str) -> list[Play]:
    """All plays of an environment, the newest first."""
    rows = run.ledger.query(
        "SELECT group_id, kind, state, birth_ordinal FROM groups"
        " WHERE environment_id = ? AND role = 'agent' ORDER BY rowid DESC",
        (environment_id,),
    )
    return [Play(*row) for row in rows]


def filled(run: ViewedRun, play: Play) -> Play:
    """The same with its episodes."""
    samples = [s for s in run.ledger.samples_of(play.group_id) if s.seed is not None]
    for sample in sorted(samples, key=lambda s: s.index):
        assert sample.seed is not None
        play.seeds.setdefault(sample.seed, {})[sample.arm or ""] = sample
    return play


def shown_play(run: ViewedRun, plays: list[Play], seed: int | None) -> Play | None:
    """The play to show: of that seed, else the newest with both arms, else the newest played."""
    first: Play | None = None
    for play in plays:
        filled(run, play)
        if seed is not None:
            if seed in play.seeds:
                return play
            continue
        if play.has_both:
            return play
        if first is None and play.seeds:
            first = play
    return first


def choose_seed(play: Play, seed: int | None) -> tuple[int, str]:
    """(seed to show, why that one).

    Without a wish: the first whose arms end in different returns and whose words are here, else the
    first whose arms differ, else the first with words, else the first.

    Raises:
        RunFolderError: the wished seed was not played in this group.
    """
    if seed is not None:
        if seed not in play.seeds:
            known = ", ".join(map(str, play.seeds))
            raise RunFolderError(f"--seed {seed} was not played; played were: {known}")
        return seed, "asked for"
    differing = [s for s, arms in play.seeds.items() if _differ(arms)]
    worded = [s for s, arms in play.seeds.items() if all(_words(a) for a in arms.values())]
    for candidates, why in (
        ([s for s in differing if s in worded], "the first where the arms differ"),
        (worded, "the first with a transcript" if differing else "no seed where the arms differ"),
        (differing, "the first where the arms differ"),
        (list(play.seeds), "the first"),
    ):
        if candidates:
            return candidates[0], why
    raise RunFolderError(f"play {play.group_id} has no episodes yet: look again in a moment")


def shown(sample: SampleRow) -> Shown:
    """One episode with its words, as far as they were kept."""
    words = _words(sample)
    return Shown(
        sample,
        None if words is None else str(words.get("observation") or ""),
        None if words is None else words.get("hint"),
        [] if words is None else [t for t in words.get("transcript") or [] if isinstance(t, dict)],
    )


def _words(sample: SampleRow) -> dict[str, Any] | None:
    try:
        extra = json.loads(sample.extra_json)
    except ValueError:
        return None
    return extra if isinstance(extra, dict) and "transcript" in extra else None


def _differ(arms: dict[str, SampleRow]) -> bool:
    returns = [arms[arm].episode_return if arm in arms else None for arm in ARMS]
    return None not in returns and returns[0] != returns[1]

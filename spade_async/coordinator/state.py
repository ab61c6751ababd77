"""What is outstanding: designer groups, play groups and their members, as kept in memory.

All of it can be rebuilt from the ledger (`resume.py`); nothing here is a second truth.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field
from typing import Any

from spade_async.ledger.hints import HINTS
from spade_async.types import Arm, Environment, RegretEstimate


class MemberState(enum.StrEnum):
    """Life of one design inside its group."""

    PENDING = "pending"
    """Its task is out, or its episodes are."""
    WAITING = "waiting"
    """Valid; waits for a place among the agent's groups."""
    PLAYING = "playing"
    HELD = "held"
    """Played, and still in play: it is paid after `designer.reward.delay` learner steps."""
    RESOLVED = "resolved"
    """Paid, or missing with a reason."""


@dataclass(slots=True)
class Standing:
    """What is known of a design that was played, until it is paid."""

    first: int
    """Birth of its first play; an offset counts learner steps from there."""
    regret: float | None
    """Paid regret of its pairs; None with `missing`."""
    missing: str | None
    """Why there is no regret."""
    hint_mean: float | None
    """Mean return of the hinted episodes."""
    timed_out: bool = False
    """Its environment mostly hung (kept for the reference's rules; ours pays it at once)."""
    plays: dict[int, list[float]] = field(default_factory=dict)
    """Offset -> returns without hint that came."""
    running: set[str] = field(default_factory=set)
    """Play groups at later offsets whose episodes are not all in."""
    begun: set[int] = field(default_factory=set)
    """Offsets that are played or in play."""


@dataclass(slots=True)
class DesignMember:
    """One design of a group."""

    index: int
    task_id: str
    state: MemberState = MemberState.PENDING
    environment: Environment | None = None
    skeleton_share: float = 0.0
    judge_penalty: float = 0.0
    """Taken off its pay; designer.judge_penalty if the judge said no."""
    estimate: RegretEstimate | None = None
    repaired: tuple[str, ...] = ()
    """What was repaired before it could be played; see `DesignResult`."""
    standing: Standing | None = None
    """Set once its episodes are in."""
    reward: float | None = None
    """None while unresolved, or when the sample is missing."""
    missing_reason: str | None = None

    @property
    def sample_id(self) -> str:
        """The design's sample has the id of its task."""
        return self.task_id


@dataclass(slots=True)
class DesignGroup:
    """Designs that share a prompt and a baseline."""

    group_id: str
    number: int
    skill: str
    document_id: str
    document: str
    exemplars: list[dict[str, Any]]
    birth: int
    members: list[DesignMember]
    rule: str = HINTS
    """How its environments are measured; see `hints.py`."""
    created_s: float = field(default_factory=time.monotonic)

    @property
    def is_resolved(self) -> bool:
        """Whether every design is paid or missing."""
        return all(m.state is MemberState.RESOLVED for m in self.members)

    @property
    def held(self) -> list[DesignMember]:
        """Designs that wait for their pay."""
        return [m for m in self.members if m.state is MemberState.HELD]

    @property
    def is_held(self) -> bool:
        """Whether nothing but learner steps is missing before the group is paid."""
        done = (MemberState.RESOLVED, MemberState.HELD)
        return bool(self.held) and all(m.state in done for m in self.members)


@dataclass(frozen=True, slots=True)
class EpisodeCell:
    """Result of one episode as far as scoring needs it."""

    sample_id: str
    episode_return: float | None
    missing_reason: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """One episode as text."""

    hint: str | None
    transcript: str


@dataclass(slots=True)
class PlayGroup:
    """Episodes of one environment: both arms on the same seeds, or one arm for the pool.

    Under `run.compat = "reference"` the hinted arm has seeds, and a number of them, of its own.
    """

    group_id: str
    number: int
    kind: str
    """"play" (a design of this run), "replay" (the same at a later offset) or "pool" (memory or
    seed pool); only "play" has a hinted arm."""
    environment: Environment
    seeds: list[int]
    """Of both arms; of the one without hint where the other has its own."""
    birth: int
    parent: DesignGroup | None = None
    member: DesignMember | None = None
    cells: dict[Arm, list[EpisodeCell | None]] = field(default_factory=dict)
    shown: dict[Arm, Shown] = field(default_factory=dict)
    """First instance of each arm, for people to read."""
    created_s: float = field(default_factory=time.monotonic)
    hinted_seeds: list[int] | None = None
    """Of the hinted arm, where it does not play `seeds`."""
    is_ready: bool = False
    num_issued: int = -1
    """Pairs given out so far, the first ones of `seeds`; all of them unless blocks are played."""
    is_decided: bool = True
    """Whether nothing more will be given out."""
    is_stopped: bool = False
    """Whether that is because its class is certain."""
    is_scheduled: bool = True
    """False after a fall-back that left it too old to train: its design still needs its returns."""

    def __post_init__(self) -> None:
        if self.num_issued < 0:
            self.num_issued = len(self.seeds)

    @property
    def is_paired(self) -> bool:
        """Whether both arms play the same seeds."""
        return self.hinted_seeds is None

    def seeds_of(self, arm: Arm) -> list[int]:
        """What that arm plays, in order."""
        is_own = arm is Arm.WITH_HINT and self.hinted_seeds is not None
        return self.hinted_seeds or [] if is_own else self.seeds

    def issued(self, arm: Arm) -> int:
        """How many of them are given out so far: blocks are of pairs alone."""
        return self.num_issued if self.is_paired else len(self.seeds_of(arm))

    def arm_is_in(self, arm: Arm) -> bool:
        """Whether every episode of that arm that was given out has a result."""
        return all(cell is not None for cell in self.cells[arm][: self.issued(arm)])

    @property
    def is_complete(self) -> bool:
        """Whether every episode of every arm has a result, and no more will be given out."""
        return self.is_decided and all(self.arm_is_in(arm) for arm in self.cells)

    def returns(self, arm: Arm) -> list[float | None]:
        """[num seeds] returns of one arm in seed order; None where missing or not played."""
        cells = self.cells.get(arm, [None] * len(self.seeds_of(arm)))
        return [None if c is None else c.episode_return for c in cells]

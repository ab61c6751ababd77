"""Records that the schedule answers with, and the rows it is restored from."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from spade_async.types import Role


class WaitReason(enum.StrEnum):
    """Why `Schedule.take` gives nothing."""

    TRAINING = "training"
    """A batch is in training, or batches of the past are to be trained again first."""
    DEADLINE = "deadline"
    """Without the named group a later step could not keep the bound."""
    FILLING = "filling"
    """The role's quota is not full and work that can fill it is on its way."""
    NOTHING_READY = "nothing_ready"
    """No group of either role is complete."""
    HELD = "held"
    """The named designer group has to be paid before its time (`designer.reward.delay`): a deadline
    needs it, or nothing is ready and nothing else can come."""


@dataclass(frozen=True, slots=True)
class Take:
    """Groups of the next step, oldest first, per role at most its quota; at least one in all."""

    designer: list[str]
    agent: list[str]


@dataclass(frozen=True, slots=True)
class Wait:
    """No step yet. Example: Wait(reason=DEADLINE, role=AGENT, waits_for="p-31")."""

    reason: WaitReason
    role: Role | None = None
    waits_for: str | None = None
    """Oldest group that is not ready and is waited for; None when nothing is admitted yet."""


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """A group that is not trained, as it goes into the ledger and comes back at a resume."""

    group_id: str
    role: Role
    birth: int
    is_ready: bool
    reserved: int = 0
    """Designer groups only: agent places still held."""
    is_from_pool: bool = False
    """Agent groups only."""
    is_held: bool = False
    """Designer groups only: played, and waiting for learner steps before they are paid."""
    wanted: int = 0
    """Designer groups only: designs that are, or may come, in play."""

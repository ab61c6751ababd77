"""Loops 6-8 of design.md 4: what an environment turned out to be, and what its design is paid.

The one place where a design's fate becomes a reward, or missing with a reason.
"""

from __future__ import annotations

from spade_async.coordinator.core import Core
from spade_async.coordinator.measure import measure, note
from spade_async.coordinator.payer import Payer
from spade_async.coordinator.recall import remember
from spade_async.coordinator.state import DesignGroup, DesignMember, PlayGroup
from spade_async.designer.reward import Unplayed
from spade_async.ledger.hints import HINTS
from spade_async.types import (
    MissingRegret,
    Outcome,
    RegretEstimate,
    Rejection,
    Stage,
)

ENVIRONMENT_FAULT = "environment:"
"""Start of a missing reason that is the environment's doing, not ours."""


class Scorer:
    """Turns complete play groups into estimates and designs into pay."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.payer = Payer(core)

    def rejected(self, group: DesignGroup, member: DesignMember, rejection: Rejection) -> None:
        """A draft that is no environment: bounded negative pay, its agent place is free again."""
        self._core.schedule.release(group.group_id)
        self.payer.resolve(group, member, rejection)

    def unplayed(self, group: DesignGroup, member: DesignMember, reason: str) -> None:
        """A valid environment that is not played: one too many of its skeleton, or a near copy."""
        self._core.schedule.release(group.group_id)
        self.payer.resolve(group, member, Unplayed(reason))

    def missing(self, group: DesignGroup, member: DesignMember, reason: str) -> None:
        """Our own fault: the design has no reward."""
        self._core.schedule.release(group.group_id)
        self.payer.resolve(group, member, MissingRegret(reason))

    def played(self, play: PlayGroup) -> None:
        """Every episode of both arms is in: estimate the regret, remember, pay."""
        core = self._core
        group, member = play.parent, play.member
        assert group is not None
        assert member is not None
        fault = self.environment_fault(play)
        if fault is not None:
            core.window.estimate(None)
            note(core, play, None)
            self.payer.resolve(group, member, fault, play)
            return
        found = measure(core, play)
        if isinstance(found, RegretEstimate):
            member.estimate = found
            core.window.estimate(found)
            remember(core, play, found, group.skill)
            core.newest.append((play, found))
        elif group.rule == HINTS:
            core.window.estimate(None)
        self.payer.resolve(group, member, found, play)

    def environment_fault(self, play: PlayGroup) -> Rejection | None:
        """An environment that fails in at least half of its episodes is the designer's fault."""
        cells = [c for arm in play.cells.values() for c in arm if c is not None]
        faults = [
            c.missing_reason
            for c in cells
            if c.missing_reason is not None and c.missing_reason.startswith(ENVIRONMENT_FAULT)
        ]
        if 2 * len(faults) < len(cells) or not faults:
            return None
        reason = f"failed in {len(faults)} of {len(cells)} episodes, first: {faults[0]}"
        hung = f"{ENVIRONMENT_FAULT} {Outcome.TIMED_OUT}"
        mostly_hung = 2 * sum(fault.startswith(hung) for fault in faults) > len(faults)
        return Rejection(
            Stage.STEP, reason, Outcome.TIMED_OUT if mostly_hung else Outcome.EXCEPTION
        )

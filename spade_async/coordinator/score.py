"""Loops 6-8 of design.md 4: what an environment turned out to be, and what its design is paid.

The one place where a design's fate becomes a reward, or missing with a reason.
"""

from __future__ import annotations

from spade_async.coordinator.core import Core
from spade_async.coordinator.measure import measure, note
from spade_async.coordinator.state import DesignGroup, DesignMember, MemberState, PlayGroup
from spade_async.designer.reward import Unplayed, design_reward
from spade_async.types import (
    MissingRegret,
    Outcome,
    RegretEstimate,
    Rejection,
    Role,
    Stage,
)

ENVIRONMENT_FAULT = "environment:"
"""Start of a missing reason that is the environment's doing, not ours."""


class Scorer:
    """Turns complete play groups into estimates and designs into pay."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def rejected(self, group: DesignGroup, member: DesignMember, rejection: Rejection) -> None:
        """A draft that is no environment: bounded negative pay, its agent place is free again."""
        self._core.schedule.release(group.group_id)
        self._resolve(group, member, rejection)

    def unplayed(self, group: DesignGroup, member: DesignMember) -> None:
        """A valid environment that the skeleton quota kept from being played."""
        self._core.schedule.release(group.group_id)
        self._resolve(group, member, Unplayed("skeleton quota of this step"))

    def missing(self, group: DesignGroup, member: DesignMember, reason: str) -> None:
        """Our own fault: the design has no reward."""
        self._core.schedule.release(group.group_id)
        self._resolve(group, member, MissingRegret(reason))

    def played(self, play: PlayGroup) -> None:
        """Every episode of both arms is in: estimate the regret, remember, pay."""
        core = self._core
        group, member = play.parent, play.member
        assert group is not None
        assert member is not None
        fault = self._environment_fault(play)
        if fault is not None:
            core.window.estimate(None)
            note(core, play, None)
            self._resolve(group, member, fault)
            return
        found = measure(core, play)
        if isinstance(found, RegretEstimate):
            member.estimate = found
            core.window.estimate(found)
            core.memory.add(play.environment, found, core.step)
            core.newest.append((play, found))
        else:
            core.window.estimate(None)
        self._resolve(group, member, found)

    def _environment_fault(self, play: PlayGroup) -> Rejection | None:
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
        return Rejection(Stage.STEP, reason, Outcome.EXCEPTION)

    def _resolve(
        self,
        group: DesignGroup,
        member: DesignMember,
        verdict: RegretEstimate | MissingRegret | Rejection | Unplayed,
    ) -> None:
        core, config = self._core, self._core.config
        member.state = MemberState.RESOLVED
        member.reward = design_reward(
            verdict,
            skeleton_share=member.skeleton_share,
            novelty_penalty=config.designer.novelty_penalty,
            invalid_reward=config.designer.invalid_reward,
        )
        if member.reward is None:
            assert isinstance(verdict, MissingRegret)
            member.missing_reason = verdict.reason
        else:
            core.window.paid(member.reward)
        core.ledger.set_reward(member.sample_id, member.reward)
        if member.missing_reason is not None:
            core.ledger.mark_unused([member.sample_id], member.missing_reason)
        if group.is_resolved:
            self._close(group)

    def _close(self, group: DesignGroup) -> None:
        """All designs are paid or missing: the group can be trained, or is missing as a whole."""
        core = self._core
        if sum(m.reward is not None for m in group.members) >= 2:
            core.schedule.ready(group.group_id)
            core.fruitless.came_to_something(Role.DESIGNER)
            core.ledger.set_group_state(group.group_id, "ready")
        else:
            core.schedule.drop(group.group_id)
            core.ledger.set_group_state(group.group_id, "missing")
            alone = [m.sample_id for m in group.members if m.reward is not None]
            core.ledger.mark_unused(alone, "no baseline: fewer than two paid designs of its group")
            del core.design_groups[group.group_id]
            reasons = [m.missing_reason for m in group.members]
            core.came_to_nothing(Role.DESIGNER, group.group_id, reasons)

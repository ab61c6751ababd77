"""Rebuilds what designs that wait for their pay have come to, from the ledger (after a restart).

The row in `pays` says what the first play gave; returns by offset are those of the design's play
groups, whose births say the offset. Groups still open are the ones that are still in play.
"""

from __future__ import annotations

from spade_async.coordinator import blocks
from spade_async.coordinator.core import Core
from spade_async.coordinator.state import DesignGroup, MemberState, Standing
from spade_async.ledger.hints import HINTS
from spade_async.types import Arm


def restore_standings(core: Core, group: DesignGroup) -> None:
    """Give the group's held members their standing; members are matched by sample id."""
    held = {row.sample_id: row for row in core.ledger.pays_of(group.group_id) if row.held}
    if not held:
        return
    for member in group.members:
        row = held.get(member.sample_id)
        if row is not None and member.state is not MemberState.RESOLVED:
            known = row.standing
            member.standing = Standing(
                first=known["first"],
                regret=known["regret"],
                missing=known["missing"],
                hint_mean=known["hint_mean"],
                timed_out=known["timed_out"],
            )
            member.state = MemberState.HELD
    of = {member.task_id: member.standing for member in group.members}
    for child in core.ledger.children_of(group.group_id):
        standing = of.get(child.group_id.rpartition(".")[0])
        if standing is None:
            continue
        offset = child.birth_ordinal - standing.first
        standing.begun.add(offset)
        if child.state == "open":
            standing.running.add(child.group_id)
            continue
        has_hints = child.kind == "play" and group.rule == HINTS
        fixed = blocks.num_fixed(core.config, num_arms=2 if has_hints else 1)
        came = [
            sample.episode_return
            for sample in core.ledger.samples_of(child.group_id)
            if sample.arm == Arm.NO_HINT
            and sample.index < fixed
            and sample.episode_return is not None
        ]
        if came:
            standing.plays[offset] = came

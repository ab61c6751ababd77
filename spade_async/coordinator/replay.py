"""Delayed pay as a loop: keeps designs that wait for it in play, and has them paid when it is time.

A held design is played again, without the hint, at the offsets 1 to `designer.reward.delay` - 1
after its first play: one agent group per environment and learner step, whose offset is that of the
weights that admission is open for. A step in which there is no place for it
leaves a gap, which is no number. The groups train like any other; seeds are new at each offset.
"""

from __future__ import annotations

from spade_async.coordinator.core import Core
from spade_async.coordinator.payer import Payer
from spade_async.coordinator.play import PlayLoop
from spade_async.coordinator.schedule import Take, Wait, WaitReason
from spade_async.coordinator.state import MemberState


class ReplayLoop:
    """Opens plays at later offsets; `PlayLoop` does the rest, `Payer` pays."""

    def __init__(self, core: Core, plays: PlayLoop, payer: Payer) -> None:
        self._core = core
        self._plays = plays
        self._payer = payer
        self._delay = core.config.designer.reward.delay

    def turn(self) -> None:
        """Pay what is due, then open new plays; before new designs are admitted."""
        if not self._delay:
            return
        self._payer.turn()
        core = self._core
        if core.step < core.config.train.steps:
            self._admit()
        coming = core.schedule.learner_ordinal + core.schedule.training
        members = [m for group in core.design_groups.values() for m in group.members]
        wanted = sum(m.state is MemberState.PLAYING for m in members)
        wanted += sum(
            m.state is MemberState.HELD
            and m.standing is not None
            and 0 < coming - m.standing.first < self._delay
            for m in members
        )
        core.schedule.expect_replays(wanted)

    def take(self) -> Take | Wait:
        """`Schedule.take`, after paying what it cannot do without."""
        schedule = self._core.schedule
        found = schedule.take()
        while isinstance(found, Wait) and found.reason is WaitReason.HELD:
            assert found.waits_for is not None
            self._payer.early(found.waits_for)
            found = schedule.take()
        return found

    def finish(self) -> None:
        """The last step of the run is done."""
        if self._delay:
            self._payer.finish()

    def _admit(self) -> None:
        """Open what is wanted at the newest weights, oldest design first, while there is room."""
        core, now = self._core, self._core.schedule.loaded_ordinal
        if core.is_stopping or now is None:
            return
        for group in sorted(core.design_groups.values(), key=lambda g: g.number):
            for member in group.held:
                if member.standing is None or member.environment is None:
                    continue
                offset = now - member.standing.first
                if not 0 < offset < self._delay or offset in member.standing.begun:
                    continue
                group_id = replay_group_id(member.task_id, offset)
                if not core.schedule.can_admit_replay():
                    return
                birth = core.schedule.admit_replay(group_id)
                member.standing.begun.add(offset)
                member.standing.running.add(group_id)
                core.counters["environments_replayed"] += 1
                self._plays.open(
                    group_id, group.number, "replay", member.environment, birth, group, member
                )


def replay_group_id(task_id: str, offset: int) -> str:
    """Name of a later play: that of its design and the offset."""
    return f"{task_id}.o{offset}"


def design_and_offset(group_id: str) -> tuple[str, int]:
    """Task of the design and offset of a later play."""
    task_id, _, offset = group_id.rpartition(".o")
    return task_id, int(offset)

"""Rebuilds outstanding groups from the ledger after a restart, and asks for what never came."""

from __future__ import annotations

import json
import logging

from spade_async.coordinator import blocks, opinions
from spade_async.coordinator.core import CUT, Core
from spade_async.coordinator.payer import RUN_ENDED
from spade_async.coordinator.play import new_play_group, play_group_id
from spade_async.coordinator.schedule import OpenGroup
from spade_async.coordinator.standings import restore_standings
from spade_async.coordinator.state import (
    DesignGroup,
    DesignMember,
    EpisodeCell,
    MemberState,
    PlayGroup,
)
from spade_async.ledger import GroupRow, SampleRow
from spade_async.types import Arm, Environment, Role

log = logging.getLogger(__name__)


def number_of(group_id: str) -> int:
    """The number in a group id: 12 of "d-0000012" and of "d-0000012.3.play"."""
    return int(group_id.split("-")[1].split(".")[0])


def regroup(core: Core) -> None:
    """Fill `core.design_groups` and `core.play_groups`; tasks are queued by the loops."""
    core.ledger.reopen(RUN_ENDED)
    rows = core.ledger.open_groups()
    for row in rows:
        if row.kind == "design":
            core.design_groups[row.group_id] = _design_group(core, row)
    members = {
        play_group_id(member): (group, member)
        for group in core.design_groups.values()
        for member in group.members
    }
    for row in rows:
        if row.kind == "replay":
            _add_replay(core, row)
        elif row.kind != "design":
            _add_play_group(core, row, members)
    # A group that was trained, or is in a batch to be sent again, may still owe its hinted arm to a
    # design. The schedule must not see it a second time.
    for play_id, (_, member) in members.items():
        if member.state is MemberState.WAITING:
            trained = core.ledger.group(play_id)
            if trained is not None:
                _add_play_group(core, trained, members)
                core.play_groups[play_id].is_ready = False


def _is_played(play: PlayGroup) -> bool:
    return play.is_decided and play.arm_is_in(Arm.NO_HINT)


def _environment(core: Core, environment_id: str) -> Environment:
    row = core.ledger.environment(environment_id)
    assert row is not None, f"environment {environment_id!r} is not in the ledger"
    return row.environment


def restore_schedule(core: Core, ordinal: int, *, num_replays: int) -> None:
    """Give the schedule what is outstanding; what no step can take in time is lost to rollback."""
    rows = [
        OpenGroup(
            group.group_id,
            Role.DESIGNER,
            group.birth,
            is_ready=group.is_resolved,
            reserved=sum(
                m.state in (MemberState.PENDING, MemberState.WAITING) for m in group.members
            ),
            is_held=group.is_held,
            wanted=sum(m.state is not MemberState.RESOLVED for m in group.members),
        )
        for group in core.design_groups.values()
    ]
    rows += [
        OpenGroup(
            play.group_id,
            Role.AGENT,
            play.birth,
            is_ready=play.is_ready,
            is_from_pool=play.kind == "pool",
        )
        for play in core.play_groups.values()
        if play.is_scheduled and (play.is_ready or not _is_played(play))
    ]
    for group_id in core.schedule.restore(ordinal, rows, num_replays=num_replays):
        _lose(core, group_id)
        samples = [s.sample_id for s in core.ledger.samples_of(group_id) if s.purpose == "train"]
        core.counters["lost_to_rollback"] += core.ledger.mark_unused(samples, "lost_to_rollback")
        core.ledger.set_group_state(group_id, "missing")


def _lose(core: Core, group_id: str) -> None:
    design = core.design_groups.pop(group_id, None)
    for play in core.play_groups.values():
        if design is not None and play.parent is design:
            play.parent = play.member = None
    lost = core.play_groups.get(group_id)
    if lost is not None:
        # Too old to train, but its design is still paid by what it returned.
        lost.is_ready = lost.is_scheduled = False
        if lost.parent is None or lost.is_complete:
            del core.play_groups[group_id]


def _design_group(core: Core, row: GroupRow) -> DesignGroup:
    group = DesignGroup(
        group_id=row.group_id,
        number=number_of(row.group_id),
        skill=row.skill,
        document_id=row.document_id,
        document=row.document,
        exemplars=json.loads(row.exemplars_json),
        birth=row.birth_ordinal,
        rule=core.ledger.hint_rule(row.group_id),
        members=[DesignMember(index=i, task_id=f"{row.group_id}.{i}") for i in range(row.members)],
    )
    for sample in core.ledger.samples_of(row.group_id):
        _fill_member(core, group.members[sample.index], sample)
    restore_standings(core, group)
    return group


def _fill_member(core: Core, member: DesignMember, sample: SampleRow) -> None:
    member.reward = sample.reward
    member.missing_reason = sample.missing_reason or sample.unused_reason
    opinions.take(member, json.loads(sample.extra_json), core.config.designer.judge_penalty)
    if sample.environment_id is not None and sample.rejection_stage is None:
        member.environment = _environment(core, sample.environment_id)
        member.skeleton_share = core.skeletons.share(member.environment.skeleton)
    if member.reward is not None or member.missing_reason is not None:
        member.state = MemberState.RESOLVED
    else:
        member.state = MemberState.WAITING


def _add_play_group(
    core: Core, row: GroupRow, members: dict[str, tuple[DesignGroup, DesignMember]]
) -> None:
    group, member = members.get(row.group_id, (None, None))
    environment = _environment(core, row.environment_id or "")
    play = _play_group(core, row, environment, group, member)
    core.play_groups[row.group_id] = play
    if member is not None and member.state is MemberState.WAITING:
        member.state = MemberState.PLAYING


def _add_replay(core: Core, row: GroupRow) -> None:
    """A later play of a design; when that was paid or lost, an agent group like any other."""
    group = core.design_groups.get(row.parent_group or "")
    task_id = row.group_id.rpartition(".")[0]
    member = None if group is None else next(m for m in group.members if m.task_id == task_id)
    environment = _environment(core, row.environment_id or "")
    core.play_groups[row.group_id] = _play_group(core, row, environment, group, member)


def _play_group(
    core: Core,
    row: GroupRow,
    environment: Environment,
    group: DesignGroup | None,
    member: DesignMember | None,
) -> PlayGroup:
    play = new_play_group(
        core,
        row.group_id,
        number_of(row.group_id),
        row.kind,
        environment,
        row.birth_ordinal,
        parent=group,
        member=member,
    )
    for sample in core.ledger.samples_of(row.group_id):
        cell = EpisodeCell(sample.sample_id, sample.episode_return, sample.missing_reason)
        play.cells[Arm(sample.arm or "")][sample.index] = cell
    blocks.restore(core, play, is_closed=row.state in ("ready", "trained"))
    play.is_ready = row.state == "ready"
    # What was trained, dropped or lost to a roll-back may still owe its design an arm; no more.
    play.is_scheduled = row.state in ("open", "ready")
    if row.state in ("ready", "trained"):
        # Its unhinted arm was closed: what has no row was cut by a program that did not note it.
        unhinted = play.cells[Arm.NO_HINT]
        for index in [i for i in range(play.num_issued) if unhinted[i] is None]:
            unhinted[index] = EpisodeCell(f"{row.group_id}.{Arm.NO_HINT}.{index}", None, CUT)
    return play

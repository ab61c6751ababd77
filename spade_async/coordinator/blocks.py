"""Pairs in blocks (`regret.early_class`): what of an environment is played, and when no more is.

A designed environment gets its pairs block by block. When a block is in, `regret.EarlyClass` is
asked; once the class is certain nothing more is issued and the play group is done with what it has.
Its place is then freed by the schedule's own means: it is ready early if its unhinted returns
differ, and dropped if they are all equal, for then there is nothing in it to train. Episodes that
have begun always end and count. A group of which an episode was cut gets no further block: the
learner waits for it already.
"""

from __future__ import annotations

from spade_async.config.schema import Config
from spade_async.coordinator.core import CUT, Core
from spade_async.coordinator.state import PlayGroup
from spade_async.regret import EarlyClass, Pair
from spade_async.types import Arm

NO_VARIANCE = "nothing to train: class certain early and all returns of its group are equal"
"""Why a finished episode of a stopped group is not trained."""
MARK = "+"
"""Stands in the id of a later block's task before the index of its first pair."""


def early_rule(config: Config) -> EarlyClass | None:
    """The rule of a run; None when every environment gets the full count."""
    found = config.regret
    if config.run.compat == "reference" or not found.early_class:
        return None
    if found.early_block >= config.agent.seeds_per_environment:
        return None
    return EarlyClass(
        planned=config.agent.seeds_per_environment,
        block=found.early_block,
        error=found.early_error,
        mastered_at=found.mastered_at,
        out_of_reach_at=found.out_of_reach_at,
    )


def rule_of(config: Config, play: PlayGroup) -> EarlyClass | None:
    """What decided how many pairs of this group are played; None: their number is fixed."""
    return early_rule(config) if len(play.cells) == 2 else None


def num_fixed(config: Config, *, num_arms: int) -> int:
    """Pairs that every environment gets, whatever they return: the first block of them."""
    rule = early_rule(config) if num_arms == 2 else None
    return config.agent.seeds_per_environment if rule is None else rule.block


def begin(config: Config, play: PlayGroup) -> None:
    """A new group gets its first block, or all of its pairs when there is no rule."""
    rule = rule_of(config, play)
    if rule is not None:
        play.num_issued = rule.next_block(0)
        play.is_decided = play.num_issued == len(play.seeds)


def spans(config: Config, play: PlayGroup, arm: Arm) -> list[tuple[int, int]]:
    """[start, end) of each task of an arm, over what is issued."""
    rule = rule_of(config, play)
    if rule is None:
        return [(0, play.issued(arm))]
    starts = range(0, play.num_issued, rule.block)
    return [(start, min(start + rule.block, play.num_issued)) for start in starts]


def pairs_of(play: PlayGroup) -> list[Pair]:
    """What was issued, in order of the seeds; None where an episode is missing or still out."""
    with_hint, without = play.returns(Arm.WITH_HINT), play.returns(Arm.NO_HINT)
    return list(zip(with_hint, without, strict=True))[: play.num_issued]


def look(core: Core, play: PlayGroup) -> bool:
    """After an episode came in: decide whether another block is played. True: it was decided now.

    With another block `num_issued` has grown; its tasks are the caller's to send.
    """
    if play.is_decided or not all(play.arm_is_in(arm) for arm in play.cells):
        return False
    rule = rule_of(core.config, play)
    assert rule is not None, f"{play.group_id} waits for blocks that no rule gives"
    pairs = pairs_of(play)
    play.is_stopped = rule.look(pairs) is not None
    was_cut = any(
        cell is not None and (cell.missing_reason or "").startswith(CUT)
        for cells in play.cells.values()
        for cell in cells
    )
    if play.is_stopped or was_cut:
        play.is_decided = True
        core.counters["pairs_not_played"] += len(play.seeds) - play.num_issued
        core.counters["environments_stopped"] += play.is_stopped
        return True
    play.num_issued = rule.next_block(play.num_issued)
    play.is_decided = play.num_issued == len(play.seeds)
    return False


def restore(core: Core, play: PlayGroup, *, is_closed: bool) -> None:
    """After a restart: how far the group of the ledger had come.

    Args:
        core: `config` and the ledger are read.
        play: its cells are filled from the ledger.
        is_closed: its unhinted arm was complete (ready or trained; one that was lost to a roll-back
            plays on for its design).
    """
    rule = rule_of(core.config, play)
    if rule is None:
        return
    measured = core.ledger.regret_of_group(play.group_id)
    if measured is not None:
        play.num_issued, play.is_stopped = measured.num_played, measured.is_stopped
        play.is_decided = True
        return
    arms = [Arm.NO_HINT] if is_closed else list(play.cells)
    known = [i for arm in arms for i, cell in enumerate(play.cells[arm]) if cell is not None]
    play.num_issued = rule.next_block(0)
    while play.num_issued <= max(known, default=0):
        play.num_issued = rule.next_block(play.num_issued)
    play.is_decided = is_closed or play.num_issued == len(play.seeds)


def task_id(group_id: str, arm: Arm, start: int) -> str:
    """Id of the task that plays the seeds from `start` on."""
    return f"{group_id}.{arm}" + (f"{MARK}{start}" if start else "")


def start_of(task_id: str) -> int:
    """Index, within its group, of the first seed of a task."""
    _, _, start = task_id.partition(MARK)
    return int(start or 0)

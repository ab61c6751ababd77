"""Loop 5 of design.md 4: give valid environments a place, send both arms, take in episodes.

A designed environment is played on the same seeds in both arms; a pool play (memory or seed pool)
in the unhinted arm only. Hinted episodes are measured and never trained.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict

from spade_async.agent.behaviour import Behaviour, of_episode
from spade_async.config.schema import Config
from spade_async.coordinator import blocks
from spade_async.coordinator.core import CUT, Core
from spade_async.coordinator.dispatch import PLAY, Task
from spade_async.coordinator.prompts import play_prompts
from spade_async.coordinator.score import Scorer
from spade_async.coordinator.state import (
    DesignGroup,
    DesignMember,
    EpisodeCell,
    MemberState,
    PlayGroup,
    Shown,
)
from spade_async.coordinator.tags import trace_of
from spade_async.ledger import GroupRow, SampleRow
from spade_async.ledger.hints import HINTS
from spade_async.seeds import derive
from spade_async.telemetry.clock import steady_unix_s
from spade_async.transport.messages import EpisodeResult, PlayTask
from spade_async.types import Arm, Environment, Outcome, Role

log = logging.getLogger(__name__)

TRAINING_SEEDS = 10**9
"""Instances are drawn below this; held-out instances lie at or above it."""
MEMORY_EVERY = 3
"""Every third pool play comes from memory, the others from the seed pool."""


class PlayLoop:
    """Owns the play groups from admission to their last episode."""

    def __init__(self, core: Core, scorer: Scorer) -> None:
        self._core = core
        self._scorer = scorer

    def start_waiting(self) -> None:
        """Start plays of valid designs, oldest design first, while the schedule has places."""
        core = self._core
        if core.is_stopping:
            return
        for group in sorted(core.design_groups.values(), key=lambda g: g.number):
            for member in group.members:
                if member.state is not MemberState.WAITING:
                    continue
                if not core.schedule.can_start_play(group.group_id):
                    break
                self._start(group, member)

    def admit_pool(self) -> None:
        """Fill the pool's share of the agent's places from memory and the seed pool."""
        core = self._core
        while not core.is_stopping and core.schedule.can_admit_pool():
            environment = self._pool_environment(core.next_number)
            core.schedule.pool_has_work = environment is not None
            if environment is None:
                return
            number = core.take_number()
            group_id = f"m-{number:07d}"
            birth = core.schedule.admit_pool(group_id)
            self.open(group_id, number, "pool", environment, birth, None, None)

    def _pool_environment(self, number: int) -> Environment | None:
        core = self._core
        seed = derive(core.config.run.seed, "pool", number)
        if number % MEMORY_EVERY == 0 and (found := core.memory.replay(seed)) is not None:
            return found
        drawn = core.seed_pool.draw(seed)
        return drawn if drawn is not None else core.memory.replay(seed)

    def _start(self, group: DesignGroup, member: DesignMember) -> None:
        assert member.environment is not None
        group_id = play_group_id(member)
        birth = self._core.schedule.start_play(group.group_id, group_id)
        member.state = MemberState.PLAYING
        self._core.window.played(member.environment.labels)
        self._core.counters["environments_played"] += 1
        self.open(group_id, group.number, "play", member.environment, birth, group, member)

    def open(
        self,
        group_id: str,
        number: int,
        kind: str,
        environment: Environment,
        birth: int,
        parent: DesignGroup | None,
        member: DesignMember | None,
    ) -> PlayGroup:
        """Register a play group, write it to the ledger and queue its tasks."""
        core, config = self._core, self._core.config
        play = new_play_group(
            core, group_id, number, kind, environment, birth, parent=parent, member=member
        )
        core.play_groups[group_id] = play
        if kind == "pool":
            core.ledger.add_environment(environment, group_id, None, core.step)
        core.ledger.add_group(
            GroupRow(
                group_id=group_id,
                role=Role.AGENT,
                kind=kind,
                birth_ordinal=birth,
                parent_group=None if parent is None else parent.group_id,
                environment_id=environment.environment_id,
                members=config.agent.seeds_per_environment,
                created_unix_s=steady_unix_s(),
            )
        )
        core.ledger.add_prompts(group_id, play_prompts(core))
        for arm in play.cells:
            self.send(play, arm)
        return play

    def send(self, play: PlayGroup, arm: Arm) -> None:
        """Queue the task of one arm; after a resume only for episodes that never came."""
        core, config = self._core, self._core.config
        for start, end in blocks.spans(config, play, arm):
            missing = {i - start for i in range(start, end) if play.cells[arm][i] is None}
            if missing:
                message = self._task(play, arm, start, end)
                core.dispatcher.submit(
                    Task(message=message, waiting_for=missing), kind=PLAY, number=play.number
                )

    def _task(self, play: PlayGroup, arm: Arm, start: int, end: int) -> PlayTask:
        core, config = self._core, self._core.config
        name = (play.group_id, arm, start) if start else (play.group_id, arm)
        return PlayTask(
            task_id=blocks.task_id(play.group_id, arm, start),
            group_id=play.group_id,
            environment_id=play.environment.environment_id,
            source=play.environment.source,
            hint=play.environment.hint,
            hint_mode=play.environment.hint_mode,
            arm=arm,
            seeds=list(play.seeds_of(arm)[start:end]),
            min_version=core.min_version(play.birth),
            max_turns=config.agent.max_turns,
            max_new_tokens=config.agent.max_new_tokens_per_turn,
            temperature=config.agent.temperature,
            purpose="train" if arm is Arm.NO_HINT else "measure",
            seed=derive(config.run.seed, "play", *name),
        )

    def ask_again(self) -> None:
        """After a resume: queue what is missing of each group that was in play."""
        for play in list(self._core.play_groups.values()):
            for arm in play.cells:
                self.send(play, arm)
            if not play.is_decided:
                self._go_on(play, None)

    def on_result(self, result: EpisodeResult) -> None:
        """Take in one episode; close what it completes."""
        core = self._core
        play = core.play_groups.get(result.group_id)
        task = core.dispatcher.result(result.task_id, result.index)
        index = blocks.start_of(result.task_id) + result.index
        if task is None or play is None:
            cell = None if play is None else play.cells[Arm(result.arm)][index]
            if cell is None or (cell.missing_reason or "").startswith(CUT):
                core.counters["tokens_cut_at_deadline"] += int(result.loss_mask.sum())
            return
        core.timings.episode(task, result, play.kind)
        result = core.checked(task.message, result)
        arm = Arm(result.arm)
        trace = trace_of(result)
        cell = EpisodeCell(
            f"{play.group_id}.{arm}.{index}", result.episode_return, result.missing_reason
        )
        behaviour = self._behaviour(arm, result)
        core.ledger.add_sample(
            SampleRow(
                sample_id=cell.sample_id,
                group_id=play.group_id,
                role=Role.AGENT,
                purpose=result.purpose,
                environment_id=play.environment.environment_id,
                seed=result.seed,
                arm=arm,
                index=index,
                outcome=Outcome(result.outcome),
                detail=result.detail,
                episode_return=result.episode_return,
                missing_reason=result.missing_reason,
                oldest_ordinal=core.versions.oldest_ordinal(result.versions, result.loss_mask),
                num_tokens=len(result.token_ids),
                num_trained_tokens=trace.num_trained_tokens,
                created_unix_s=steady_unix_s(),
            ),
            # Hinted episodes are never trained: their tokens are not kept.
            trace if arm is Arm.NO_HINT else None,
            # Of a designed environment people look at every seed (`_thin_words` bounds it).
            json.dumps(
                (_extra(result) if index == 0 or play.kind == "play" else {})
                | ({} if behaviour is None else {"behaviour": asdict(behaviour)})
            ),
        )
        if behaviour is not None:
            core.window.behaved(behaviour)
        if index == 0:
            play.shown[arm] = Shown(result.hint_text, _transcript(result))
        core.counters["episodes"] += 1
        core.window.episode(arm, result.episode_return, trace.num_trained_tokens)
        core.window.jail(result.jail.get("outcomes", {}))
        self._fill(play, arm, index, cell)

    def _behaviour(self, arm: Arm, result: EpisodeResult) -> Behaviour | None:
        """How the agent acted; None where only one turn is possible, or a hint was shown."""
        if arm is Arm.WITH_HINT or self._core.config.agent.max_turns < 2:
            return None
        return of_episode(result.transcript, result.loss_mask, result.episode_return)

    def cut(self, task: Task) -> None:
        """Episodes that did not come back in time are missing, by name, also after a resume."""
        message = task.message
        assert isinstance(message, PlayTask)
        play = self._core.play_groups.get(message.group_id)
        if play is None:
            return
        start = blocks.start_of(task.task_id)
        for waiting in sorted(task.waiting_for):
            index = start + waiting
            cell = EpisodeCell(f"{play.group_id}.{message.arm}.{index}", None, CUT)
            self._core.ledger.add_sample(
                SampleRow(
                    sample_id=cell.sample_id,
                    group_id=play.group_id,
                    role=Role.AGENT,
                    purpose=message.purpose,
                    environment_id=play.environment.environment_id,
                    seed=message.seeds[waiting],
                    arm=message.arm,
                    index=index,
                    missing_reason=CUT,
                    created_unix_s=steady_unix_s(),
                ),
                None,
            )
            self._fill(play, Arm(message.arm), index, cell)

    def _fill(self, play: PlayGroup, arm: Arm, index: int, cell: EpisodeCell) -> None:
        play.cells[arm][index] = cell
        self._go_on(play, arm)

    def _go_on(self, play: PlayGroup, arm: Arm | None) -> None:
        """What follows from a new cell of `arm` (None: a resume): another block, or an end."""
        issued = play.num_issued
        is_decided_now = blocks.look(self._core, play)
        if play.num_issued > issued:
            for other in play.cells:
                self.send(play, other)
            return
        is_due = play.is_decided and (arm is Arm.NO_HINT or is_decided_now)
        if is_due and play.is_scheduled and play.arm_is_in(Arm.NO_HINT):
            self._trainable(play)
        if play.is_complete:
            self._thin_words(play)
            if play.kind == "pool":
                self._check_pool(play)
            if play.kind == "replay":
                self._scorer.payer.replayed(play)
            elif play.parent is not None:
                self._scorer.played(play)
            if not play.is_ready:
                self._core.play_groups.pop(play.group_id, None)

    def _check_pool(self, play: PlayGroup) -> None:
        """A program of the pool's folder that fails in half of its episodes is not played again."""
        fault = self._scorer.environment_fault(play)
        if fault is None:
            return
        core = self._core
        told = core.seed_pool.failed(play.environment.environment_id, fault.reason)
        if told is not None:
            core.alert(told, kind="pool_program")

    def _thin_words(self, play: PlayGroup) -> None:
        """Of many words keep those of the first seed and of the first where the arms differ."""
        if play.kind != "play":
            return
        # Arms with seeds of their own are laid side by side by the order of play.
        both = zip(play.returns(Arm.NO_HINT), play.returns(Arm.WITH_HINT), strict=play.is_paired)
        differing = [i for i, pair in enumerate(both) if None not in pair and pair[0] != pair[1]]
        self._core.ledger.thin_words(play.group_id, [0, *differing[:1]])

    def _trainable(self, play: PlayGroup) -> None:
        """All unhinted episodes are in: the group may be trained, if it has a baseline."""
        core = self._core
        returns = [r for r in play.returns(Arm.NO_HINT) if r is not None]
        if play.is_stopped and len(set(returns)) == 1:
            core.schedule.drop(play.group_id)
            core.fruitless.came_to_something(Role.AGENT)
            core.ledger.set_group_state(play.group_id, "missing")
            equal = [
                c.sample_id for c in play.cells[Arm.NO_HINT] if c and c.episode_return is not None
            ]
            core.ledger.mark_unused(equal, blocks.NO_VARIANCE)
        elif len(returns) >= 2:
            play.is_ready = True
            core.schedule.ready(play.group_id)
            core.fruitless.came_to_something(Role.AGENT)
            core.ledger.set_group_state(play.group_id, "ready")
        else:
            core.schedule.drop(play.group_id)
            core.ledger.set_group_state(play.group_id, "missing")
            alone = [c.sample_id for c in play.cells[Arm.NO_HINT] if c is not None]
            core.ledger.mark_unused(alone, "no baseline: fewer than two episodes of its group")
            reasons = [c.missing_reason for c in play.cells[Arm.NO_HINT] if c is not None]
            core.came_to_nothing(Role.AGENT, play.group_id, reasons)


def play_group_id(member: DesignMember) -> str:
    """A design is played once, so its play group is named after it."""
    return f"{member.task_id}.play"


def new_play_group(
    core: Core,
    group_id: str,
    number: int,
    kind: str,
    environment: Environment,
    birth: int,
    *,
    parent: DesignGroup | None,
    member: DesignMember | None,
) -> PlayGroup:
    """A play group with empty cells; its seeds follow from the run seed and its id."""
    config = core.config
    count = config.agent.seeds_per_environment
    has_hints = kind == "play" and (parent is None or parent.rule == HINTS)
    hinted = _hinted_seeds(config, group_id) if has_hints else None
    counts = {Arm.NO_HINT: count}
    if has_hints:
        counts[Arm.WITH_HINT] = count if hinted is None else len(hinted)
    play = PlayGroup(
        group_id=group_id,
        number=number,
        kind=kind,
        environment=environment,
        seeds=[
            derive(config.run.seed, "instance", group_id, i) % TRAINING_SEEDS for i in range(count)
        ],
        birth=birth,
        parent=parent,
        member=member,
        cells={arm: [None] * number for arm, number in counts.items()},
        hinted_seeds=hinted,
    )
    blocks.begin(config, play)
    return play


def _hinted_seeds(config: Config, group_id: str) -> list[int] | None:
    """Seeds of the hinted arm alone, as the reference plays it; None: those of the other arm."""
    if config.run.compat != "reference":
        return None
    return [
        derive(config.run.seed, "hinted instance", group_id, i) % TRAINING_SEEDS
        for i in range(config.regret.reference_hinted_plays)
    ]


def _extra(result: EpisodeResult) -> dict[str, object]:
    return {
        "observation": result.observation,
        "hint": result.hint_text,
        "transcript": result.transcript,
    }


def _transcript(result: EpisodeResult) -> str:
    lines = [f"observation: {result.observation}"]
    for turn in result.transcript:
        lines.append(f"action: {turn.get('action')}")
        lines.append(f"reward {turn.get('reward')}, observation: {turn.get('observation')}")
    lines.append(f"return: {result.episode_return} {result.missing_reason or ''}".rstrip())
    return "\n".join(lines)

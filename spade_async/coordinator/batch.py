"""Loop 9 of design.md 4: ready groups become one training batch.

The schedule says which groups and when; this file computes advantages, writes the plan to the
ledger *before* it is sent, and builds the message. After a crash the same plan is sent again.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace

from spade_async.coordinator.compare import Comparison
from spade_async.coordinator.core import Core
from spade_async.coordinator.schedule import Take
from spade_async.grpo.baseline import Valued
from spade_async.grpo.samples import TrainSample, pack, sequences
from spade_async.transport.codec import laid_out_fields
from spade_async.transport.experts import sent_experts
from spade_async.transport.messages import TrainingBatch
from spade_async.types import Arm, Role, TokenTrace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One sample of a planned batch."""

    sample_id: str
    group_id: str
    role: Role
    advantage: float
    staleness: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Composition of one step."""

    rows: list[PlannedRow]
    group_ids: frozenset[str]
    replays: int | None = None
    """Ordinal of the undone batch that this one repeats."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Why finished samples of the groups are not in it, and how many each; in the ledger by name.
    """


class BatchLoop:
    """Composes the batch of the next step."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._comparison = Comparison.of(core.config)
        self._left_out = Counter[str]()

    def compose(self, take: Take) -> Plan:
        """Samples, advantages and ages of the groups that were taken, in a fixed order.

        Call inside a ledger transaction: samples that cannot be trained are marked.
        """
        self._left_out.clear()
        designs = [found for g in take.designer for found in self._designs(g)]
        episodes = [found for g in take.agent for found in self._episodes(g)]
        rows = self._rows(Role.DESIGNER, designs)
        rows += self._rows(Role.AGENT, episodes)
        rows = self._scaled(rows)
        kept, group_ids = self._within_bound(rows), frozenset([*take.designer, *take.agent])
        for group_id in group_ids - {row.group_id for row in kept}:
            # Nothing of it can be trained: a resume must not take it again.
            self._core.ledger.set_group_state(group_id, "missing")
        return Plan(kept, group_ids, left_out=dict(self._left_out))

    def _designs(self, group_id: str) -> list[tuple[str, Valued]]:
        group = self._core.design_groups[group_id]
        paid = [(m.sample_id, m.reward) for m in group.members if m.reward is not None]
        return [(name, Valued(group_id, group.skill, value)) for name, value in paid]

    def _episodes(self, group_id: str) -> list[tuple[str, Valued]]:
        """Unhinted episodes only: a hinted one is never trained and never a baseline."""
        play, skill = self._core.play_groups[group_id], self._skill(group_id)
        cells = [c for c in play.cells[Arm.NO_HINT] if c is not None]
        paid = [(c.sample_id, c.episode_return) for c in cells if c.episode_return is not None]
        return [(name, Valued(group_id, skill, value)) for name, value in paid]

    def _skill(self, group_id: str) -> str:
        """Skill that a play group's environment was designed for; "pool" for all others."""
        if self._comparison.agent != "skill_mean":
            return ""
        group = self._core.ledger.group(group_id)
        parent = None if group is None else group.parent_group
        design = None if parent is None else self._core.ledger.group(parent)
        return "pool" if design is None else design.skill

    def _rows(self, role: Role, found: list[tuple[str, Valued]]) -> list[PlannedRow]:
        core = self._core
        samples = [sample for _, sample in found]
        equal = self._comparison.equal_groups(samples)
        advantages = self._comparison.advantages(samples, role)
        now = core.schedule.learner_ordinal
        rows = []
        for (sample_id, valued), advantage in zip(found, advantages, strict=True):
            sample = core.ledger.sample(sample_id)
            assert sample is not None, f"{sample_id} is not in the ledger"
            reason = None
            if sample.oldest_ordinal is None:
                # An episode can end before the agent's first token: nothing to train.
                reason = "no sampled token"
            elif advantage is None:
                reason = f"no baseline: alone under {self._comparison.rule(role)} in its step"
            elif valued.group in equal:
                reason = "zero variance: all of its group are worth the same"
            if reason is not None or sample.oldest_ordinal is None or advantage is None:
                core.ledger.mark_unused([sample_id], reason or "")
                self._left_out[reason or ""] += 1
                continue
            age = now - sample.oldest_ordinal
            rows.append(PlannedRow(sample_id, valued.group, role, advantage, age))
        return rows

    def _scaled(self, rows: list[PlannedRow]) -> list[PlannedRow]:
        """The designer's advantages times the scale of the step, when there is one."""
        num_designs = sum(row.role is Role.DESIGNER for row in rows)
        factor = self._comparison.scale(num_designs, len(rows) - num_designs)
        if factor == 1.0:
            return rows
        return [
            replace(row, advantage=factor * row.advantage) if row.role is Role.DESIGNER else row
            for row in rows
        ]

    def _within_bound(self, rows: list[PlannedRow]) -> list[PlannedRow]:
        """The last check of the bound. The schedule leaves it nothing to do: a find is our fault.

        Such a sample is named in an alert, counted in `samples_over_bound`, and not trained.
        """
        core = self._core
        bounds = dict(zip((Role.AGENT, Role.DESIGNER), core.config.async_.bounds, strict=True))
        kept = []
        for row in rows:
            if row.staleness <= bounds[row.role]:
                kept.append(row)
                continue
            fault = (
                f"fault of the schedule: sample {row.sample_id} of the {row.role} is "
                f"{row.staleness} steps old, its bound is {bounds[row.role]}; it was not trained"
            )
            log.error("%s", fault)
            core.alert(fault, kind="over_bound")
            core.counters["samples_over_bound"] += 1
            core.counters["tokens_discarded_for_age"] += self._num_tokens(row.sample_id)
            core.ledger.mark_unused([row.sample_id], "ours: over its staleness bound")
            self._left_out["ours: over its staleness bound"] += 1
        return kept

    def _num_tokens(self, sample_id: str) -> int:
        sample = self._core.ledger.sample(sample_id)
        return 0 if sample is None else sample.num_trained_tokens

    def _trace(self, sample_id: str) -> TokenTrace:
        trace = self._core.ledger.trace(sample_id)
        assert trace is not None, f"{sample_id}: its tokens are not in the ledger"
        return trace

    def _worth(self, sample_id: str) -> float | None:
        """Only a critic wants it."""
        if not self._core.config.learner.critic.enabled:
            return None
        sample = self._core.ledger.sample(sample_id)
        return None if sample is None else sample.worth

    def message(
        self, plan: Plan, *, branch: int, step: int, checkpoint: bool = False
    ) -> TrainingBatch:
        """The message for a plan; traces come from the ledger.

        `checkpoint` asks for one even if `checkpoint.every` does not.
        """
        core = self._core
        groups = {group: n for n, group in enumerate(dict.fromkeys(r.group_id for r in plan.rows))}
        samples = [
            sequence
            for row in plan.rows
            for sequence in sequences(
                TrainSample(
                    sample_id=row.sample_id,
                    role=row.role,
                    advantage=row.advantage,
                    staleness=row.staleness,
                    trace=self._trace(row.sample_id),
                    group=groups[row.group_id],
                    worth=self._worth(row.sample_id),
                )
            )
        ]
        fields = pack(samples, finite=False)
        room = core.config.link.max_message_bytes
        fields["experts"] = sent_experts(fields["experts"], room, f"the batch of step {step}")
        last = step >= core.config.train.steps
        return TrainingBatch(
            branch=branch,
            step=step,
            checkpoint=checkpoint or last or step % core.config.checkpoint.every == 0,
            # One block that is sent as it lies: the largest message of a run.
            **laid_out_fields(TrainingBatch, fields),
        )

"""Loop 1-4: admit designer groups, send their tasks, take in what was written.

Reads the corpus cursor and the memory; writes groups, design samples and environments to the
ledger. What a design earns is decided in `score.py`, after its episodes.
"""

from __future__ import annotations

import json
import logging

from spade_async.coordinator import hints, opinions
from spade_async.coordinator.core import CUT, Core
from spade_async.coordinator.dispatch import DESIGN, Task
from spade_async.coordinator.prompts import design_prompts
from spade_async.coordinator.score import Scorer
from spade_async.coordinator.state import DesignGroup, DesignMember, MemberState
from spade_async.coordinator.tags import trace_of
from spade_async.designer.skills import Rotation, chosen_skills, domain_skills
from spade_async.environment.contract import environment_id, skeleton
from spade_async.grounding.diversity import Design
from spade_async.grounding.signature import SLOTS, Signature
from spade_async.ledger import GroupRow, SampleRow
from spade_async.seeds import derive
from spade_async.telemetry.clock import steady_unix_s
from spade_async.transport.messages import DesignResult, DesignTask
from spade_async.types import Environment, Outcome, Rejection, Role, Stage

log = logging.getLogger(__name__)


class DesignLoop:
    """Owns the designer groups from admission to their last result."""

    def __init__(self, core: Core, scorer: Scorer) -> None:
        self._core = core
        self._scorer = scorer
        config = core.config
        self._measures_leaks = config.regret.leak_seeds > 0 and config.designer.hint != "none"
        designer = core.config.designer
        self._rotation = Rotation(
            chosen_skills(designer.skills, domain_skills(core.domain)),
            designer.skills_per_window,
            designer.skill_window,
        )

    def admit(self) -> None:
        """Admit every designer group the schedule has room for."""
        core = self._core
        while not core.is_stopping and core.schedule.can_admit_design():
            number = core.take_number()
            group = self._new_group(f"d-{number:07d}", number)
            core.design_groups[group.group_id] = group
            core.ledger.add_group(
                GroupRow(
                    group_id=group.group_id,
                    role=Role.DESIGNER,
                    kind="design",
                    birth_ordinal=group.birth,
                    skill=group.skill,
                    document_id=group.document_id,
                    document=group.document,
                    exemplars_json=json.dumps(group.exemplars),
                    members=len(group.members),
                    created_unix_s=steady_unix_s(),
                )
            )
            core.ledger.set_hint_rule(group.group_id, group.rule)
            core.ledger.add_prompts(group.group_id, design_prompts(core, group.document))
            for member in group.members:
                self.send(group, member)

    def _new_group(self, group_id: str, number: int) -> DesignGroup:
        core, config = self._core, self._core.config
        document = core.corpus.next()
        skill = self._rotation.skill(core.counters["design_groups"])
        core.counters["design_groups"] += 1
        return DesignGroup(
            group_id=group_id,
            number=number,
            skill=skill.name,
            document_id=document.document_id,
            document=document.text,
            exemplars=core.memory.exemplars(
                config.grounding.num_exemplars,
                derive(config.run.seed, "exemplars", group_id),
                skill.name,
            ),
            birth=core.schedule.admit_design(group_id),
            members=[
                DesignMember(index=i, task_id=f"{group_id}.{i}")
                for i in range(config.designer.group_size)
            ],
            rule=hints.rule_for(core, skill.name),
        )

    def send(self, group: DesignGroup, member: DesignMember) -> None:
        """Queue the task of one design (also after a resume, when its result never came)."""
        core, config = self._core, self._core.config
        message = DesignTask(
            task_id=member.task_id,
            group_id=group.group_id,
            min_version=core.min_version(group.birth),
            skill=group.skill,
            document=group.document,
            document_id=group.document_id,
            exemplars=group.exemplars,
            temperature=config.designer.temperature,
            max_new_tokens=config.designer.max_new_tokens,
            seed=derive(config.run.seed, "design", member.task_id),
        )
        core.dispatcher.submit(
            Task(message=message, waiting_for={0}), kind=DESIGN, number=group.number
        )

    def ask_again(self) -> None:
        """After a resume: queue the tasks whose results never came."""
        for group in self._core.design_groups.values():
            for member in group.members:
                if member.state is MemberState.PENDING:
                    self.send(group, member)

    def on_result(self, result: DesignResult) -> None:
        """Take in one design: store it, then reject it, refuse it or let it wait for its plays."""
        core = self._core
        group = core.design_groups.get(result.group_id)
        task = core.dispatcher.result(result.task_id, 0)
        if task is None or group is None:
            core.counters["tokens_cut_at_deadline"] += int(result.loss_mask.sum())
            return
        core.timings.design(task, result)
        result = core.checked(task.message, result)
        member = next(m for m in group.members if m.task_id == result.task_id)
        rejection = _rejection(result)
        environment = None if result.source == "" else self._environment(result)
        copied = None
        if environment is not None and rejection is None and result.missing_reason is None:
            copied = core.memory.refuse_copy(environment, _signature(result))
        self._store(group, member, result, rejection, environment, copied or "")
        core.window.jail(result.jail.get("outcomes", {}))
        core.counters["prompts_skipped"] += core.window.prompt(result.prompt, result.missing_reason)
        if result.missing_reason is not None:
            self._scorer.missing(group, member, result.missing_reason)
            return
        core.counters["designs"] += 1
        leak_share = result.leak_share if self._measures_leaks else None
        core.window.design(
            stage=None if rejection is None else rejection.stage, leak_share=leak_share
        )
        opinions.take(member, opinions.extra(result), core.config.designer.judge_penalty)
        core.window.opinions(member.repaired, result.verdicts)
        if rejection is not None:
            core.quota.skip()
            self._scorer.rejected(group, member, rejection)
            return
        assert environment is not None, f"{result.task_id} is valid but has no source"
        member.environment = environment
        member.skeleton_share = core.skeletons.share(environment.skeleton)
        core.skeletons.add(environment.skeleton)
        core.diversity.add(Design(member.sample_id, environment.skeleton, _signature(result)))
        core.window.repeated(member.skeleton_share)
        core.guards.design(environment.skeleton, dict(environment.labels), leak_share)
        if copied is not None:
            core.quota.skip()
            core.window.copied()
            self._scorer.unplayed(group, member, copied)
        elif core.quota.admit(environment.skeleton):
            member.state = MemberState.WAITING
        else:
            core.window.refused()
            self._scorer.unplayed(group, member, "skeleton quota of this step")

    def cut(self, task: Task) -> None:
        """A design that did not come back in time is missing, also after a resume."""
        group = self._core.design_groups.get(task.message.group_id)
        if group is None:
            return
        member = next(m for m in group.members if m.task_id == task.task_id)
        self._core.ledger.add_sample(
            SampleRow(
                sample_id=member.sample_id,
                group_id=group.group_id,
                role=Role.DESIGNER,
                purpose="train",
                index=member.index,
                missing_reason=CUT,
                created_unix_s=steady_unix_s(),
            ),
            None,
        )
        self._scorer.missing(group, member, CUT)

    def _environment(self, result: DesignResult) -> Environment:
        return Environment(
            environment_id=environment_id(result.source),
            source=result.source,
            hint_mode=result.hint_mode,
            hint=result.hint,
            leak_share=result.leak_share,
            labels=tuple(sorted(self._core.domain.labels(result.source).items())),
            skeleton=skeleton(result.source),
            origin="designer",
        )

    def _store(
        self,
        group: DesignGroup,
        member: DesignMember,
        result: DesignResult,
        rejection: Rejection | None,
        environment: Environment | None,
        copied: str,
    ) -> None:
        core = self._core
        trace = trace_of(result)
        labels = {} if environment is None else dict(environment.labels)
        if environment is not None:
            labels["skeleton"] = environment.skeleton
        core.ledger.add_sample(
            SampleRow(
                sample_id=member.sample_id,
                group_id=group.group_id,
                role=Role.DESIGNER,
                purpose="train",
                environment_id=None if environment is None else environment.environment_id,
                index=member.index,
                outcome=_outcome(rejection),
                detail=copied if rejection is None else rejection.reason,
                rejection_stage=None if rejection is None else rejection.stage,
                missing_reason=result.missing_reason,
                oldest_ordinal=core.versions.oldest_ordinal(result.versions, result.loss_mask),
                num_tokens=len(result.token_ids),
                num_trained_tokens=trace.num_trained_tokens,
                created_unix_s=steady_unix_s(),
                labels_json=json.dumps(labels),
            ),
            trace,
            json.dumps({"jail": result.jail, "prompt": result.prompt} | opinions.extra(result)),
        )
        if environment is not None and rejection is None:
            core.ledger.add_environment(environment, group.group_id, member.sample_id, core.step)
            if (signature := _signature(result)) is not None:
                core.ledger.add_signature(environment.environment_id, signature)


def _rejection(result: DesignResult) -> Rejection | None:
    if result.rejection is None:
        return None
    outcome = result.rejection.get("outcome")
    return Rejection(
        stage=Stage(result.rejection["stage"]),
        reason=str(result.rejection["reason"])[:500],
        outcome=None if outcome is None else Outcome(outcome),
    )


def _signature(result: DesignResult) -> Signature | None:
    return result.signature if len(result.signature) == SLOTS else None


def _outcome(rejection: Rejection | None) -> str:
    if rejection is None:
        return Outcome.FINISHED
    return "" if rejection.outcome is None else rejection.outcome

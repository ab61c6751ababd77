"""When a design is paid, and by what: at once, or after so many learner steps (step 8).

With `designer.reward.delay = k` a design that was played is *held*: its environment stays in play
(`replay.py`) and it is paid when k learner steps are done since its first play (its group's last
one) and what was in play meanwhile is in. Nothing waits for that but its own group, whose place in
the schedule is held. What waits is in the ledger (`pays`, and the play groups): a resume goes on.

Before its time a group is paid in three cases only: when its bound would not be kept otherwise,
when nothing else could come (both `WaitReason.HELD`), and before the last take of a run. What no
step is left for when a run ends is paid as well and marked unused with `RUN_ENDED`; a longer run
takes it up again.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from spade_async.coordinator import blocks
from spade_async.coordinator.compare import Comparison
from spade_async.coordinator.core import Core
from spade_async.coordinator.hints import NEEDS_HINTS, without_hints
from spade_async.coordinator.state import (
    DesignGroup,
    DesignMember,
    MemberState,
    PlayGroup,
    Standing,
)
from spade_async.designer.reward import PayRule, Unplayed, design_reward
from spade_async.designer.rewards.facts import Facts, Raw
from spade_async.designer.rewards.registry import make
from spade_async.designer.rewards.variance import variance_bonus
from spade_async.regret import filled
from spade_async.types import Arm, MissingRegret, Outcome, RegretEstimate, Rejection, Role

RUN_ENDED = "run ended: no learner step was left to train it"
MASKED = "masked: its blend is below 0"

Verdict = RegretEstimate | MissingRegret | Rejection | Unplayed


class Payer:
    """Turns verdicts into pay, and closes designer groups."""

    def __init__(self, core: Core) -> None:
        self._core = core
        config = core.config
        reward = config.designer.reward
        self._is_reference = config.run.compat == "reference"
        self._delay = reward.delay
        self._bonus = 0.0 if self._is_reference else reward.variance_bonus
        self._variant = make(reward, config.run.compat)
        # Without hints there is no regret to pay by.
        needs_hints = reward.variant in NEEDS_HINTS
        self._variants = without_hints(reward) if needs_hints else {}
        self._rule = PayRule(
            novelty_penalty=config.designer.novelty_penalty,
            invalid=None if self._is_reference else config.designer.invalid_reward,
            timed_out=reward.timed_out,
            repaired=reward.repaired,
            repair_penalty=reward.repair_penalty,
        )
        # A design that is alone in its group can still be compared with others of its skill.
        self._fewest = 1 if Comparison.of(config).designer == "skill_mean" else 2

    def resolve(
        self,
        group: DesignGroup,
        member: DesignMember,
        verdict: Verdict,
        play: PlayGroup | None = None,
    ) -> None:
        """What became of a design; `play` when its episodes are in."""
        if play is not None and self._is_paid_by_variant(verdict):
            self._take_in(group, member, verdict, play)
            if self._delay:
                self._hold(group, member)
            else:
                self._pay(group, member, self._raw(group, member))
        else:
            self._pay(group, member, verdict)
        if group.is_resolved:
            self._close(group)

    def replayed(self, play: PlayGroup) -> None:
        """The episodes of a later offset are in; without effect on a design that was paid."""
        member = play.member
        if play.parent is None or member is None or member.standing is None:
            return
        member.standing.running.discard(play.group_id)
        offset = play.birth - member.standing.first
        _add_returns(member.standing, offset, play.returns(Arm.NO_HINT))

    def turn(self) -> None:
        """Pay the groups whose time has come; once per turn of the loop, in a transaction."""
        for group in list(self._core.design_groups.values()):
            if group.is_held and self._is_due(group):
                self._pay_all(group)

    def early(self, group_id: str) -> None:
        """Pay a group before its time; what is in play for it comes too late for its pay."""
        group = self._core.design_groups[group_id]
        self._core.counters["designs_paid_early"] += len(group.held)
        self._pay_all(group)

    def finish(self) -> None:
        """The last step is done: pay what waits, and say that nothing trains it any more."""
        core = self._core
        for group in list(core.design_groups.values()):
            held = group.held
            for member in held:
                self._pay(group, member, self._raw(group, member))
            left = [m.sample_id for m in group.members if m.reward is not None]
            if held and group.is_resolved:
                self._close(group)
            core.ledger.mark_unused(left, RUN_ENDED)

    def _is_due(self, group: DesignGroup) -> bool:
        core = self._core
        if core.step >= core.config.train.steps - 1:
            return True
        standings = [m.standing for m in group.held if m.standing is not None]
        is_time = core.schedule.learner_ordinal >= self._delay + max(s.first for s in standings)
        return is_time and not any(m.standing is not None and m.standing.running
                                   for m in group.held)  # fmt: skip

    def _is_paid_by_variant(self, verdict: Verdict) -> bool:
        """The reference pays a faulty environment by what it has of plays; ours at once."""
        return isinstance(verdict, RegretEstimate | MissingRegret) or (
            self._is_reference and isinstance(verdict, Rejection)
        )

    def _take_in(
        self, group: DesignGroup, member: DesignMember, verdict: Verdict, play: PlayGroup
    ) -> None:
        # Of pairs that may be stopped early only a number that was fixed is free of bias.
        fixed = blocks.num_fixed(self._core.config, num_arms=len(play.cells))
        if play.is_paired:
            hinted = [r for r in play.returns(Arm.WITH_HINT)[:fixed] if r is not None]
        else:
            hinted = filled(play.returns(Arm.WITH_HINT))
        is_estimate = isinstance(verdict, RegretEstimate)
        hung = isinstance(verdict, Rejection) and verdict.outcome is Outcome.TIMED_OUT
        if self._is_reference:
            hung = _any_hung(play)
        member.standing = Standing(
            first=play.birth,
            regret=verdict.paid_regret if isinstance(verdict, RegretEstimate) else None,
            missing=None if is_estimate else getattr(verdict, "reason", ""),
            hint_mean=fmean(hinted) if hinted else None,
            timed_out=hung,
        )
        member.standing.begun.add(0)
        _add_returns(member.standing, 0, play.returns(Arm.NO_HINT)[:fixed])
        known = member.standing
        self._core.ledger.hold_pay(
            member.sample_id,
            group.group_id,
            group.skill,
            {
                "first": known.first,
                "regret": known.regret,
                "missing": known.missing,
                "hint_mean": known.hint_mean,
                "timed_out": known.timed_out,
            },
        )

    def _hold(self, group: DesignGroup, member: DesignMember) -> None:
        member.state = MemberState.HELD
        if group.is_held:
            self._core.schedule.hold(group.group_id)

    def _raw(self, group: DesignGroup, member: DesignMember) -> Raw:
        standing = member.standing
        assert standing is not None, f"{member.sample_id} was not played"
        facts = Facts(
            skill=group.skill,
            plays=standing.plays,
            hint_mean=standing.hint_mean,
            regret=standing.regret,
            timed_out=standing.timed_out,
            repaired="turn" in member.repaired,
        )
        raw = self._variants.get(group.rule, self._variant).raw(facts, self._core.trackers)
        if self._bonus and raw.value is not None:
            bonus = self._bonus * (variance_bonus(facts.returns) or 0.0)
            raw = Raw(
                value=raw.value + bonus, components={**raw.components, "variance_bonus": bonus}
            )
        self._core.ledger.note_pay(member.sample_id, raw.value, raw.components, standing.plays)
        self._core.pay_window.design(
            group.skill, raw, offsets=len(standing.plays), plays=len(facts.returns)
        )
        return raw

    def _pay_all(self, group: DesignGroup) -> None:
        if self._is_reference:
            self._move_tracker(group)
        for member in group.held:
            self._pay(group, member, self._raw(group, member))
        self._close(group)

    def _pay(self, group: DesignGroup, member: DesignMember, verdict: Verdict | Raw) -> None:
        core = self._core
        assert not isinstance(verdict, RegretEstimate), "an estimate is paid through its variant"
        member.state = MemberState.RESOLVED
        reward = design_reward(
            verdict, self._rule, skeleton_share=member.skeleton_share, repaired=member.repaired
        )
        member.reward, member.missing_reason = reward, None
        if reward is None:
            member.missing_reason = _why_missing(verdict, member)
        else:
            reward = member.reward = reward - member.judge_penalty
            core.window.paid(reward)
            core.pay_window.paid(group.skill, reward)
        core.ledger.set_reward(member.sample_id, reward)
        if member.missing_reason is not None:
            core.ledger.mark_unused([member.sample_id], member.missing_reason)

    def _close(self, group: DesignGroup) -> None:
        """All designs are paid or missing: the group can be trained, or is missing as a whole."""
        core = self._core
        if not (self._is_reference and self._delay):
            self._move_tracker(group)
        if sum(m.reward is not None for m in group.members) >= self._fewest:
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

    def _move_tracker(self, group: DesignGroup) -> None:
        """Once per group, with the mean of all its returns."""
        standings = [m.standing for m in group.members if m.standing is not None]
        returns = [r for s in standings for plays in s.plays.values() for r in plays]
        if returns:
            tracker = self._core.trackers.of(group.skill)
            tracker.update(fmean(returns))
            self._core.pay_window.tracker(group.skill, tracker)


def _any_hung(play: PlayGroup) -> bool:
    """Whether an episode hung: one is enough for the reference."""
    hung = f"environment: {Outcome.TIMED_OUT}"
    return any(
        (cell.missing_reason or "").startswith(hung)
        for cells in play.cells.values()
        for cell in cells
        if cell is not None
    )


def _add_returns(standing: Standing, offset: int, returns: Sequence[float | None]) -> None:
    came = [value for value in returns if value is not None]
    if came:
        standing.plays[offset] = came


def _why_missing(verdict: Verdict | Raw, member: DesignMember) -> str:
    if isinstance(verdict, Rejection):
        return f"rejected at {verdict.stage}: the reference trains no invalid program"
    if isinstance(verdict, MissingRegret):
        return verdict.reason
    assert isinstance(verdict, Raw), f"{member.sample_id}: {verdict} has a pay"
    if verdict.is_masked:
        return MASKED
    known = member.standing
    regret_is_missing = known is not None and known.regret is None and verdict.value is None
    if regret_is_missing and verdict.reason == "no complete pair":
        return (known.missing if known is not None else None) or "no complete pair"
    return verdict.reason or "no value"

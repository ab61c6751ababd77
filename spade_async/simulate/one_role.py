"""One role in virtual time: an engine that decodes, a learner, and a rule of staleness.

The setting of the comparison of rules (docs/simulate.md): groups of sequences of random length,
decoded together; a learner with a token rate; a pause of both at each publication. No partial
rollouts, independent lengths.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from spade_async.simulate.decode import DecodeSlots
from spade_async.simulate.durations import Durations, mean
from spade_async.simulate.rules import RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRoleSetting:
    """Parameters of a simulation. Times in seconds, lengths in tokens."""

    rule: str
    """A key of `RULES`."""
    bound: int
    slots: int
    lengths: Durations
    group_size: int = 8
    quota: int = 32
    """Groups per step."""
    learner_tokens_per_s: float = 20_000.0
    pause_s: float = 1.0
    """Neither side works while new weights are swapped in."""
    step_fixed_s: float = 0.010
    step_per_sequence_s: float = 0.00002


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRoleResult:
    """What came out, over the steps after the warm-up."""

    step_s: float
    trained_tokens_per_s: float
    learner_idle_share: float
    """Learner waits for a batch; the pause is no idleness."""
    generator_idle_share: float
    """Nothing is being decoded, the pause included."""
    mean_age: float
    """Over trained groups, in learner steps."""
    max_age: int
    over_bound_share: float
    """Share of trained groups older than the bound."""
    waste_share: float
    """Share of the decoded tokens that were thrown away."""
    length_ratio: float
    """Mean length of what was trained over that of all that was started, same groups."""


@dataclass(slots=True)
class _Group:
    birth: int
    tokens: float
    left: int
    """Sequences that are not in."""


@dataclass(slots=True)
class _Count:
    """Sums since the warm-up."""

    bound: int
    cohort: range
    """Births whose groups are all trained or thrown away before the end."""
    since_s: float = 0.0
    learner_s: float = 0.0
    decode_s: float = 0.0
    trained_tokens: float = 0.0
    wasted_tokens: float = 0.0
    ages: list[int] = field(default_factory=list)
    trained_of_cohort: list[float] = field(default_factory=list)
    all_of_cohort: list[float] = field(default_factory=list)

    def begin(self, now_s: float, decode_s: float) -> None:
        """The warm-up is over."""
        self.since_s, self.decode_s = now_s, decode_s
        self.learner_s = self.trained_tokens = self.wasted_tokens = 0.0
        self.ages.clear()

    def result(self, now_s: float, decode_s: float, num_steps: int) -> OneRoleResult:
        """The figures."""
        span_s = now_s - self.since_s
        return OneRoleResult(
            step_s=span_s / num_steps,
            trained_tokens_per_s=self.trained_tokens / span_s,
            learner_idle_share=max(1.0 - self.learner_s / span_s, 0.0),
            generator_idle_share=1.0 - (decode_s - self.decode_s) / span_s,
            mean_age=mean(self.ages),
            max_age=max(self.ages),
            over_bound_share=mean(age > self.bound for age in self.ages),
            waste_share=self.wasted_tokens / (self.wasted_tokens + self.trained_tokens),
            length_ratio=mean(self.trained_of_cohort) / mean(self.all_of_cohort),
        )


def simulate_one_role(
    setting: OneRoleSetting, *, steps: int, warm_up: int, seed: int
) -> OneRoleResult:
    """Simulate `steps` learner steps; the figures are of those after the first `warm_up`.

    Raises:
        ValueError: too few steps: no group's whole life lies between warm-up and end.
    """
    cohort = range(warm_up, steps - 2 * setting.bound - 2)
    if not cohort:
        raise ValueError(
            f"steps={steps}, warm_up={warm_up}: a bound of {setting.bound} needs at least "
            f"{warm_up + 2 * setting.bound + 3} steps"
        )
    return _OneRole(setting, _Count(setting.bound, cohort), seed).run(steps, warm_up)


class _OneRole:
    """State of one simulation."""

    def __init__(self, setting: OneRoleSetting, count: _Count, seed: int) -> None:
        self._setting = setting
        self._count = count
        self._rng = random.Random(seed)
        self._rule = RULES[setting.rule](setting.bound, setting.quota)
        self._slots = DecodeSlots(
            setting.slots,
            fixed_s=setting.step_fixed_s,
            per_sequence_s=setting.step_per_sequence_s,
        )
        self._groups: dict[str, _Group] = {}
        self._now_s = 0.0
        self._num_admitted = 0
        self._step = 0
        self._learn_end_s: float | None = None

    def run(self, steps: int, warm_up: int) -> OneRoleResult:
        while self._step < steps:
            self._admit()
            if self._learn_end_s is None:
                self._take()
            end_s = self._slots.next_end_s()
            if self._learn_end_s is not None and self._learn_end_s <= self._now_s + end_s:
                self._advance(self._learn_end_s - self._now_s)
                self._finish_step()
                if self._step == warm_up:
                    self._count.begin(self._now_s, self._slots.busy_s)
            else:
                assert end_s < math.inf, f"everyone waits at step {self._step}"
                self._advance(end_s)
                self._end_sequence()
        return self._count.result(self._now_s, self._slots.busy_s, steps - warm_up)

    def _advance(self, seconds: float) -> None:
        self._slots.advance(seconds)
        self._now_s += seconds

    def _admit(self) -> None:
        """A group starts when a slot is free and nothing waits for one."""
        setting = self._setting
        while self._slots.has_room and self._rule.may_admit():
            name = f"g-{self._num_admitted}"
            self._num_admitted += 1
            lengths = [setting.lengths.draw(self._rng) for _ in range(setting.group_size)]
            group = _Group(self._rule.admit(name), sum(lengths), len(lengths))
            self._groups[name] = group
            if group.birth in self._count.cohort:
                self._count.all_of_cohort.append(group.tokens)
            self._slots.submit(name, lengths)

    def _end_sequence(self) -> None:
        name = self._slots.pop_ended()
        group = self._groups[name]
        group.left -= 1
        if not group.left:
            self._rule.finished(name)

    def _take(self) -> None:
        taken = self._rule.take()
        self._drop()
        if taken is None:
            return
        count, tokens = self._count, 0.0
        for name in taken:
            group = self._groups.pop(name)
            tokens += group.tokens
            count.ages.append(self._step - group.birth)
            if group.birth in count.cohort:
                count.trained_of_cohort.append(group.tokens)
        busy_s = tokens / self._setting.learner_tokens_per_s
        count.trained_tokens += tokens
        count.learner_s += busy_s + self._setting.pause_s
        self._learn_end_s = self._now_s + busy_s

    def _finish_step(self) -> None:
        self._learn_end_s = None
        self._step += 1
        self._rule.step_finished()
        self._now_s += self._setting.pause_s
        self._rule.weights_loaded()
        self._drop()

    def _drop(self) -> None:
        """Count what the rule threw away: whole groups, or as far as they had come."""
        for name in self._rule.dropped():
            group = self._groups.pop(name)
            decoded = group.tokens
            if group.left:
                decoded = self._slots.cancel(name)
            self._count.wasted_tokens += decoded

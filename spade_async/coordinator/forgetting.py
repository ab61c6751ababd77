"""What the policy could do once and cannot do any more, on the fixed held-out instances. Pure.

Each evaluation plays the same instances with the same random numbers, so two of them are compared
instance by instance: the error is that of the mean difference, not of two means. An evaluation is
held against the first and against the best one before it (highest mean over all instances), over
all instances and over each group of them (a level, a family).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from spade_async.telemetry.metrics import part

LEAST_INSTANCES = 8
"""A group of fewer instances says nothing."""
CLEARED_AT = 0.5
"""An alarm is over when every fall is below this part of both limits."""
_STANDARD = NormalDist()
ALL = "all"
"""Name of the group of all instances."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One held-out instance under one version."""

    key: str
    """The same at every evaluation."""
    groups: tuple[str, ...]
    """What it counts for, such as ("level 1", "family sort")."""
    episode_return: float
    level: str = ""


@dataclass(frozen=True, slots=True)
class Fall:
    """How far one group fell from an earlier evaluation."""

    group: str
    since_step: int
    before: float
    now: float
    standard_error: float
    num_instances: int
    allowance: float
    """Standard errors that are no news: the best of many evaluations owes some to luck."""

    @property
    def drop(self) -> float:
        """Positive when it got worse."""
        return self.before - self.now

    @property
    def errors(self) -> float:
        """The drop in standard errors of it."""
        return self.drop / self.standard_error


class Forgetting:
    """Keeps the first and the best evaluation; compares each new one with both."""

    def __init__(self, *, drop: float, errors: float) -> None:
        """`drop` and `errors`: `guards.forgetting_drop` and `guards.forgetting_errors`."""
        self._drop = drop
        self._errors = errors
        self._references: dict[str, tuple[int, dict[str, float]]] = {}
        self._num = 0

    def observe(self, step: int, scores: Sequence[Scored]) -> list[Fall]:
        """Falls of this evaluation, one per group and reference, the furthest first.

        The evaluation becomes a reference itself when it is the first or the best.
        """
        now = {s.key: s.episode_return for s in scores}
        if not now:
            return []
        groups: dict[str, list[str]] = {ALL: list(now)}
        for scored in scores:
            for group in scored.groups:
                groups.setdefault(group, []).append(scored.key)
        falls = [
            fall
            for name, (since, before) in self._references.items()
            if name == "first" or since != self._references["first"][0]
            for group, keys in groups.items()
            if (fall := _fall(group, since, before, now, keys, self._allowance(name))) is not None
        ]
        self._num += 1
        self._references.setdefault("first", (step, now))
        best = self._references.get("best")
        if best is None or _mean(now) > _mean(best[1]):
            self._references["best"] = (step, now)
        return sorted(falls, key=lambda f: f.errors, reverse=True)

    def beyond(self, falls: Sequence[Fall], part: float = 1.0) -> list[Fall]:
        """The falls above `part` of both limits.

        For a single group the limit in standard errors is that of all instances at the same rate of
        false alarms over all groups together (Bonferroni). Against the best of m evaluations it is
        sqrt(log m) more: about what the luckiest of m equal ones is ahead, in these errors.
        """
        num_groups = len({f.group for f in falls} - {ALL}) or 1
        rate = 1.0 - _STANDARD.cdf(self._errors)
        single = -_STANDARD.inv_cdf(max(rate / num_groups, 1e-300))
        return [
            fall
            for fall in falls
            if fall.drop > part * self._drop
            and fall.errors
            > part * ((self._errors if fall.group == ALL else single) + fall.allowance)
        ]

    def _allowance(self, reference: str) -> float:
        return 0.0 if reference == "first" else math.sqrt(math.log(self._num))

    def state(self) -> dict[str, Any]:
        """JSON-able, for the ledger."""
        references = {name: [step, s] for name, (step, s) in self._references.items()}
        return {"num": self._num, "references": references}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self._num = int(state["num"])
        references = state["references"].items()
        self._references = {name: (int(step), dict(s)) for name, (step, s) in references}


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores)


def _fall(
    group: str,
    since: int,
    before: Mapping[str, float],
    now: Mapping[str, float],
    keys: Sequence[str],
    allowance: float,
) -> Fall | None:
    """Paired over the instances that both evaluations scored; None when they are too few."""
    pairs = [(before[key], now[key]) for key in keys if key in before]
    n = len(pairs)
    if n < LEAST_INSTANCES:
        return None
    differences = [then - after for then, after in pairs]
    # The error if nothing had changed (McNemar's test for returns of 0 and 1): the spread around
    # the mean would be too small where few instances all fell. + 1: no error is 0.
    error = math.sqrt(sum(d * d for d in differences) + 1.0) / n
    then, after = sum(b for b, _ in pairs) / n, sum(a for _, a in pairs) / n
    return Fall(group, since, then, after, error, n, allowance)


def family_tags(scores: Sequence[Scored]) -> dict[str, float]:
    """Points of an evaluation by family, {} without that label."""
    found: dict[str, list[float]] = {}
    for scored in scores:
        for group in scored.groups:
            name, _, value = group.partition(" ")
            if name == "family":
                found.setdefault(part(value), []).append(scored.episode_return)
    return {f"eval/family/{f}/accuracy": sum(r) / len(r) for f, r in found.items()}

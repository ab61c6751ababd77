"""What a sample is compared with: one rule per role, over all samples of a step (step 8).

    dr_grpo        r - mean of its group
    z_score        (r - mean of its group) / population deviation of its group
    leave_one_out  r - mean of the others of its group = (r - mean) * G / (G - 1)
    skill_mean     r - mean of all samples of its skill in the step

The group of an agent sample is the episodes of one environment at one offset, that of a design the
designs of one prompt. Missing members are left out by the caller: they are no numbers. A lone
sample has no baseline: None. Equal values give 0 under every rule, below a deviation of `EPS`
z_score too.

Sources: Dr. GRPO (arXiv 2503.20783), GRPO (DeepSeekMath 4.1), RLOO (arXiv 2402.14740); the mean per
skill is what SPADE's code centres its designer rewards by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, get_args

from spade_async.grpo.advantage import group_advantages

Rule = Literal["dr_grpo", "z_score", "leave_one_out", "skill_mean"]
RULES: tuple[str, ...] = get_args(Rule)


@dataclass(frozen=True, slots=True)
class Valued:
    """One sample before it is compared."""

    group: str
    skill: str
    value: float


def advantages(samples: Sequence[Valued], rule: Rule) -> list[float | None]:
    """Advantage of each sample, in input order; None where nothing is there to compare with.

    Args:
        samples: all of one role in one step.
        rule: see the module.

    Raises:
        ValueError: a value is not finite, or there is no such rule.
    """
    if rule not in RULES:
        raise ValueError(f"baseline {rule!r}: expected one of {', '.join(RULES)}")
    by_key: dict[str, list[int]] = {}
    for index, sample in enumerate(samples):
        key = sample.skill if rule == "skill_mean" else sample.group
        by_key.setdefault(key, []).append(index)
    found: list[float | None] = [None] * len(samples)
    for members in by_key.values():
        if len(members) < 2:
            continue
        values = [samples[index].value for index in members]
        for index, advantage in zip(members, _compare(values, rule), strict=True):
            found[index] = advantage
    return found


def has_no_variance(values: Sequence[float]) -> bool:
    """Whether all are equal up to rounding: every rule gives zeros."""
    mean = fmean(values)
    return all(abs(value - mean) <= 1e-12 * max(1.0, abs(mean)) for value in values)


def _compare(values: Sequence[float], rule: Rule) -> list[float]:
    centred = group_advantages(values, normalise_std=rule == "z_score")
    if rule != "leave_one_out":
        return centred
    factor = len(values) / (len(values) - 1)
    return [factor * value for value in centred]

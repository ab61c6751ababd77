"""The reference's pay of one whole batch: raw values, centred per skill, times the scale.

A run in compatibility mode pays design by design with `reference_rules` and centres when the batch
is composed; here both stand together as the reference computes them, immediate and delayed, with
its metrics under its own names, for comparison with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean

from spade_async.designer.rewards.facts import Facts, Raw, Variant
from spade_async.designer.rewards.learning_potential import Trackers
from spade_async.designer.rewards.micro_lp import halves
from spade_async.designer.rewards.reference_rules import ReferenceLearningPotential
from spade_async.designer.rewards.variance import population_variance

EASY, HARD = 0.8, 0.2
"""Mean returns above and below which a game counts as easy or hard in the metrics."""


@dataclass(frozen=True, slots=True)
class Paid:
    """What a batch came to."""

    rewards: dict[str, float]
    """Design -> reward. Masked designs, and those of an unknown skill, are absent."""
    raws: dict[str, Raw]
    masked: frozenset[str]
    metrics: dict[str, float]


def centred(raws: Mapping[str, float], skills: Mapping[str, str], scale: float) -> dict[str, float]:
    """(raw - mean of the raws of its skill) * scale; a lone design of its skill gets 0."""
    means = {
        skill: fmean(raws[name] for name in raws if skills[name] == skill)
        for skill in {skills[name] for name in raws}
    }
    return {name: (value - means[skills[name]]) * scale for name, value in raws.items()}


def immediate(
    variant: Variant,
    designs: Mapping[str, Facts],
    trackers: Trackers,
    *,
    scale: float,
    skills: Collection[str] | None = None,
    update: bool = True,
) -> Paid:
    """Pay at once. The level of a skill is read before its own returns move it.

    Args:
        variant: of `reference_rules`.
        designs: design -> facts, offset 0 only.
        trackers: moved afterwards if `update`.
        scale: factor of the designer.
        skills: known skills; designs of another one vanish. None: all are known.
        update: False when the pay is computed again later.
    """
    known = {n: f for n, f in designs.items() if skills is None or f.skill in skills}
    if variant.name == "learning_potential":
        known = {n: f for n, f in known.items() if f.mean is not None}
    raws = {name: variant.raw(facts, trackers) for name, facts in known.items()}
    if update:
        _move(trackers, known)
    metrics: dict[str, float] = {}
    played = [f for f in known.values() if f.mean is not None]
    if played:
        means = [f.mean for f in played if f.mean is not None]
        metrics["medium_pct"] = fmean(float(HARD <= m <= EASY) for m in means)
        metrics["avg_game_std"] = fmean(population_variance(f.returns) ** 0.5 for f in played)
    metrics |= _regret_metrics(known, raws)
    return _paid(known, raws, scale, metrics)


def delayed(
    variant: Variant,
    designs: Mapping[str, Facts],
    trackers: Trackers | None = None,
    *,
    scale: float,
    update: bool = False,
) -> Paid:
    """Pay after the offsets were played.

    Args:
        variant: of `reference_rules`.
        designs: design -> facts.
        trackers: of learning potential; a design of a skill without one keeps its old reward.
        scale: factor of the designer.
        update: move each skill's tracker with the mean of all its returns, before it is read.
    """
    trackers = trackers or Trackers(gamma_fast=0.98, gamma_slow=0.85)
    known = dict(designs)
    if isinstance(variant, ReferenceLearningPotential):
        known = {name: facts for name, facts in designs.items() if facts.skill in trackers}
        if update:
            _move(trackers, known)
    raws = {name: variant.raw(facts, trackers) for name, facts in known.items()}
    metrics = _regret_metrics(known, raws)
    if known and variant.name == "blend":
        metrics |= _blend_metrics(known, raws)
    if known and variant.name == "micro_lp":
        metrics |= _progress_metrics(known)
    return _paid(known, raws, scale, metrics)


def _paid(
    known: Mapping[str, Facts], raws: dict[str, Raw], scale: float, metrics: dict[str, float]
) -> Paid:
    masked = frozenset(name for name, raw in raws.items() if raw.is_masked)
    values = {
        name: raw.value
        for name, raw in raws.items()
        if raw.value is not None and name not in masked
    }
    if masked or "masked_frac" in metrics:
        metrics["masked_frac"] = len(masked) / len(raws)
    rewards = centred(values, {name: facts.skill for name, facts in known.items()}, scale)
    return Paid(rewards, raws, masked, metrics if known else {})


def _move(trackers: Trackers, known: Mapping[str, Facts]) -> None:
    for skill in sorted({facts.skill for facts in known.values()}):
        returns = [r for f in known.values() if f.skill == skill for r in f.returns]
        if returns:
            trackers.of(skill).update(fmean(returns))


def _regret_metrics(known: Mapping[str, Facts], raws: Mapping[str, Raw]) -> dict[str, float]:
    regrets = [
        raw.components["regret"]
        for name, raw in raws.items()
        if "regret" in raw.components and not (known[name].timed_out or known[name].repaired)
    ]
    if not raws or not any("regret" in raw.components for raw in raws.values()):
        return {}
    hints = [facts.hint_mean for facts in known.values() if facts.hint_mean is not None]
    metrics = {
        "floored_frac": sum(regret < 0.0 for regret in regrets) / len(raws),
        "step_timeout_frac": fmean(float(facts.timed_out) for facts in known.values()),
    }
    if hints:
        metrics["avg_r_hint"] = fmean(hints)
    return metrics


def _blend_metrics(known: Mapping[str, Facts], raws: Mapping[str, Raw]) -> dict[str, float]:
    def column(name: str) -> list[float]:
        return [raw.components[name] for raw in raws.values()]

    variances = [
        population_variance(facts.returns) if facts.returns else 0.0 for facts in known.values()
    ]
    metrics = {
        "blend_regret_mean": fmean(column("regret")),
        "blend_regret_std": population_variance(column("regret")) ** 0.5,
        "blend_micro_lp_mean": fmean(column("micro_lp")),
        "blend_micro_lp_std": population_variance(column("micro_lp")) ** 0.5,
        "blend_win_rate_mean": fmean(column("solve_rate")),
        "blend_frontier_penalty_mean": fmean(column("frontier")),
        "blend_plateau_mean": fmean(column("plateau")),
        "blend_win_rate_var_mean": fmean(variances),
        "masked_frac": 0.0,
    }
    for part in ("regret", "micro_lp", "frontier", "plateau"):
        metrics[f"comp_{part}_norm"] = fmean(map(abs, column(f"{part}_term")))
    ends = [_ends(facts) for facts in known.values()]
    present = [pair for pair in ends if pair is not None]
    if present:
        metrics["blend_early_mean"] = fmean(early for early, _ in present)
        metrics["blend_late_mean"] = fmean(late for _, late in present)
    return metrics


def _progress_metrics(known: Mapping[str, Facts]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    improvements = []
    for skill in sorted({facts.skill for facts in known.values()}):
        ends = [_ends(facts) for facts in known.values() if facts.skill == skill]
        pairs = [pair or (0.0, 0.0) for pair in ends]
        early, late = fmean(e for e, _ in pairs), fmean(la for _, la in pairs)
        metrics[f"skill_{skill}/early_mean"] = early
        metrics[f"skill_{skill}/late_mean"] = late
        metrics[f"skill_{skill}/improvement"] = late - early
        improvements.append(late - early)
    metrics["improving_skill_pct"] = 100.0 * fmean(float(value > 0.0) for value in improvements)
    return metrics


def _ends(facts: Facts) -> tuple[float, float] | None:
    """(early, late) mean; the only offset stands for both; None without returns."""
    means = [mean for _, mean, _ in facts.offset_means]
    if len(means) > 1:
        return halves(means)
    return (means[0], means[0]) if means else None

"""What is done about hints that mislead (`regret.negative`): per skill, told, tried again later.

`regret.NegativeRegret` raises the alarm; this file carries it out. With "ignore" it is only told.
Otherwise designs of that skill that are admitted from then on are played without hints, and paid by
solve rate ("no_hint") or learning potential; a group keeps the rule it was admitted under, so that
its designs can be compared. After `regret.negative_recheck` learner steps hints are tried again.
"""

from __future__ import annotations

from spade_async.config.reward import RewardConfig
from spade_async.config.schema import Config
from spade_async.coordinator.core import Core
from spade_async.designer.rewards.facts import Variant
from spade_async.designer.rewards.registry import VARIANTS
from spade_async.ledger.hints import HintChange
from spade_async.regret.negative import Change, NegativeRegret
from spade_async.telemetry.metrics import part
from spade_async.types import RegretEstimate

NEEDS_HINTS = ("regret", "blend")
"""Variants of `designer.reward` that a regret goes into."""


def monitor(config: Config) -> NegativeRegret:
    """The detector of a run."""
    found = config.regret
    return NegativeRegret(
        alarm_every=found.negative_alarm_every,
        recheck_steps=found.negative_recheck,
        span=1.0 - found.lowest_return,
    )


def rule_for(core: Core, skill: str) -> str:
    """How a group of that skill, admitted now, is measured: "hints" or a value of the key."""
    change = core.hints.resume_hints(skill, core.schedule.learner_ordinal)
    if change is not None:
        _note(core, change, "hints")
        core.alert(
            f"skill {skill!r}: hints are tried again after {core.config.regret.negative_recheck} "
            "learner steps without",
            kind="hints_again",
        )
    return "hints" if core.hints.uses_hints(skill) else core.config.regret.negative


def measured(core: Core, skill: str, found: RegretEstimate) -> None:
    """Take in one measurement; tell and act when hints of the skill mislead."""
    change = core.hints.measured(skill, found.regret, core.schedule.learner_ordinal)
    if change is None:
        return
    rule = "ignore" if core.config.run.compat == "reference" else core.config.regret.negative
    if rule == "ignore":
        core.hints.ignore(skill)
    running = change.running
    assert running is not None, "an alarm has a regret"
    error = "" if running.standard_error is None else f" +- {running.standard_error:.3f}"
    does = {
        "ignore": "nothing is done",
        "no_hint": "its designs are played without hints and paid by solve rate",
        "learning_potential": "its designs are played without hints and paid by learning potential",
    }[rule]
    _note(core, change, rule)
    core.alert(
        f"skill {skill!r}: hints make it worse, regret {running.mean:+.3f}{error} over the last "
        f"{running.num} environments; {does}",
        kind="negative_regret",
    )


def without_hints(config: RewardConfig) -> dict[str, Variant]:
    """What designs are paid by while hints are off, by the group's rule."""
    chosen = {"no_hint": "solve_rate", "learning_potential": "learning_potential"}
    return {rule: VARIANTS[name](config) for rule, name in chosen.items()}


def figures(core: Core) -> dict[str, float | None]:
    """Per skill, for the step: regret with its error, evidence against hints, hints on or off."""
    found: dict[str, float | None] = {}
    for skill in core.hints.skills():
        found[f"hints/{part(skill)}/on"] = float(core.hints.uses_hints(skill))
    for skill, running in core.hints.running().items():
        found[f"hints/{part(skill)}/regret"] = running.mean
        found[f"hints/{part(skill)}/standard_error"] = running.standard_error
        found[f"hints/{part(skill)}/evidence"] = running.evidence
    return found


def _note(core: Core, change: Change, rule: str) -> None:
    running = change.running
    core.ledger.add_hint_change(
        HintChange(
            step=core.step,
            skill=change.skill,
            rule=rule,
            regret=None if running is None else running.mean,
            standard_error=None if running is None else running.standard_error,
            num_environments=0 if running is None else running.num,
        )
    )

"""Which rule pays for old samples: names and parameters of the importance corrections.

The rules themselves are in `grpo/correction/`, one file each, with formula and source; this table
says which parameters each one has, so that a wrong configuration fails before torch is loaded.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import Field

from spade_async.config.section import Section


class CorrectionConfig(Section):
    """Importance correction; see docs/correction.md."""

    rule: str = "tis_token"
    """How a sample's age enters the loss: one of the rules of docs/correction.md."""
    cap: float | None = Field(None, ge=1.0, le=1e9)
    """Largest weight of a token or sequence; the rule's own default when not set."""
    low: float | None = Field(None, ge=0.0, le=1.0)
    """Lower end of the ratios that a rule keeps or clips to."""
    high: float | None = Field(None, ge=1.0, le=1e9)
    """Upper end of them."""
    delta: float | None = Field(None, gt=0.0, le=20.0)
    """Divergence from which a gate drops a token (probability or nats) or a sequence (nats)."""
    penalty: float | None = Field(None, ge=0.0, le=100.0)
    """Weight of the squared log-ratio."""
    max_kl: float | None = Field(None, gt=0.0, le=100.0)
    """KL(generator || learner), nats per token, above which an alert is raised; when not set, what
    the age table of docs/correction.md supports for the rule."""


LEAST_KL = 0.02
"""Limit of a rule that the table saw hold with fresh samples only: an engine's own mismatch must
not be alarming."""


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """What the configuration must know of a rule."""

    defaults: dict[str, float] = field(default_factory=dict)
    """Its parameters, with their defaults."""
    uses_generator: bool = True
    """Whether it reads the generator's log-probabilities."""
    uses_clip: bool = True
    """Whether it reads learner.clip_low and learner.clip_high."""
    min_passes: int = 1
    """Least learner.passes for which it is what its name says."""
    supported_kl: float = LEAST_KL
    """Largest KL per token, in nats, at which the age table of docs/correction.md saw it hold."""


RULES: dict[str, RuleFacts] = {
    "none": RuleFacts(uses_generator=False, supported_kl=0.08),
    "tis_token": RuleFacts({"cap": 2.0}, supported_kl=0.17),
    "tis_sequence": RuleFacts({"cap": 5.0}, supported_kl=0.15),
    "decoupled_ppo": RuleFacts(min_passes=2, supported_kl=0.12),
    "ppo_behaviour": RuleFacts(),
    "cispo": RuleFacts({"low": 0.0, "high": 5.0}, uses_clip=False, supported_kl=0.44),
    "gspo": RuleFacts({"low": 0.8, "high": 1.2}, uses_clip=False),
    "icepop": RuleFacts({"low": 0.5, "high": 5.0}, supported_kl=0.06),
    "mis_product": RuleFacts({"low": 0.5, "high": 2.0}, supported_kl=0.03),
    "mis_geometric": RuleFacts({"low": 0.8, "high": 1.25}),
    "dppo_tv": RuleFacts({"delta": 0.2}, uses_clip=False, supported_kl=0.16),
    "dppo_kl": RuleFacts({"delta": 0.05}, uses_clip=False, supported_kl=0.16),
    "gepo": RuleFacts(uses_clip=False),
    "dual_clip": RuleFacts({"cap": 3.0}),
    "squared_log_ratio": RuleFacts({"penalty": 0.001}, uses_clip=False, supported_kl=0.5),
    "opsm": RuleFacts({"delta": 0.1}),
    "truncated_reinforce": RuleFacts({"cap": 1.02}, uses_clip=False, supported_kl=0.07),
}
"""Every rule by the name a user writes."""

PARAMETERS = ("cap", "low", "high", "delta", "penalty")


def parameters(config: CorrectionConfig) -> dict[str, float]:
    """The rule's parameters: what was set, else its defaults."""
    found = {}
    for name, default in RULES[config.rule].defaults.items():
        given = getattr(config, name)
        found[name] = default if given is None else float(given)
    return found


def supported_kl(config: CorrectionConfig) -> float:
    """KL per token above which a run is beyond what the age table supports."""
    return RULES[config.rule].supported_kl if config.max_kl is None else config.max_kl


def correction_problem(
    config: CorrectionConfig, passes: int, clips: Mapping[str, float] = MappingProxyType({})
) -> str | None:
    """What is wrong with the choice, in one sentence with the next move; None when nothing is.

    Args:
        config: section learner.correction.
        passes: learner.passes.
        clips: learner.clip_low and learner.clip_high, those that are not at their defaults.
    """
    facts = RULES.get(config.rule)
    if facts is None:
        near = difflib.get_close_matches(config.rule, RULES, n=1, cutoff=0.4)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(RULES)}"
        return f'learner.correction.rule="{config.rule}": no such rule; {hint}'
    for name in PARAMETERS:
        if getattr(config, name) is not None and name not in facts.defaults:
            has = ", ".join(f"learner.correction.{p}" for p in facts.defaults) or "none"
            return (
                f"learner.correction.{name}={getattr(config, name)} has no meaning for learner."
                f'correction.rule="{config.rule}" (its parameters: {has}): remove it, or choose '
                "another rule"
            )
    for name, value in clips.items():
        if not facts.uses_clip:
            return (
                f"learner.{name}={value} has no meaning for learner.correction.rule="
                f'"{config.rule}", which does not clip like PPO: remove it (its default '
                "is 0.2), or choose another rule"
            )
    found = parameters(config)
    if "low" in found and found["low"] >= found["high"]:
        return (
            f"learner.correction.low={found['low']} must be below learner.correction.high="
            f"{found['high']}: nothing would be kept"
        )
    if passes < facts.min_passes:
        return (
            f'learner.correction.rule="{config.rule}" with learner.passes={passes}: in the first '
            "pass the ratio to the proximal policy is 1, the clip never acts, and the rule reduces "
            "to a weighted policy gradient without a bound on the weight; set learner.passes="
            f'{facts.min_passes}, or learner.correction.rule="tis_token"'
        )
    return None

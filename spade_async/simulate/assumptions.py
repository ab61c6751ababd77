"""Durations for a configuration that has not run: from its [scripted] section or from options."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.config.schema import Config
from spade_async.coordinator.blocks import early_rule
from spade_async.errors import ConfigError
from spade_async.simulate.durations import Durations, Fixed, LogNormal
from spade_async.simulate.startup import VALIDITY
from spade_async.simulate.workload import DrawnWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What a user says of durations; None where nothing is said. Means, in seconds."""

    design_s: float | None = None
    episode_s: float | None = None
    learner_s: float | None = None
    swap_s: float | None = None
    sigma: float | None = None
    """Of the logarithm of designs and episodes."""
    validity: float | None = None


def drawn_workload(config: Config, assumed: Assumed, seed: int) -> DrawnWorkload:
    """The work of a configuration; options go before the [scripted] section.

    Raises:
        ConfigError: a duration that nobody gives, or one that makes no sense.
    """
    _check(assumed)
    known = _from_scripted(config)
    said = {key: getattr(assumed, key) for key in Assumed.__dataclass_fields__}
    values: dict[str, float] = {"sigma": 1.0, "validity": VALIDITY, "swap_s": 0.0, **known}
    values |= {key: value for key, value in said.items() if value is not None}
    needed = ("design_s", "episode_s", "learner_s")
    missing = [f"--{key.replace('_', '-')}" for key in needed if key not in values]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: nothing says how long this takes; give the option"
            f"{'s' if len(missing) > 1 else ''}, or name a run of this configuration with --from "
            'RUN, or use engine.kind="scripted" with a [scripted] section'
        )
    return DrawnWorkload(
        seed=seed,
        designs=_log_normal(values["design_s"], values["sigma"]),
        episodes=_log_normal(values["episode_s"], values["sigma"]),
        learner=Fixed(values["learner_s"]),
        validity=values["validity"],
        episodes_per_arm=config.agent.seeds_per_environment,
        swap=Fixed(values["swap_s"]),
        early=early_rule(config),
    )


def _check(assumed: Assumed) -> None:
    for key in Assumed.__dataclass_fields__:
        value = getattr(assumed, key)
        option = f"--{key.replace('_', '-')}"
        if value is None:
            continue
        if not 0.0 <= value < 1e9:
            raise ConfigError(f"{option}={value}: must be at least 0")
        if key == "validity" and value > 1.0:
            raise ConfigError(f"{option}={value}: must be at most 1")
        if key == "sigma" and value > 4.0:
            raise ConfigError(f"{option}={value}: must be at most 4 (of the natural logarithm)")


def _from_scripted(config: Config) -> dict[str, float]:
    if config.engine.kind != "scripted":
        return {}
    scripted = config.scripted
    return {
        "design_s": scripted.design_tokens * scripted.token_s,
        "episode_s": scripted.episode_tokens * scripted.token_s * scripted.turns,
        "learner_s": scripted.learner_s,
        "sigma": scripted.sigma,
        "validity": scripted.validity,
    }


def _log_normal(mean_s: float, sigma: float) -> Durations:
    return Fixed(mean_s) if sigma == 0.0 or mean_s == 0.0 else LogNormal.of_mean(mean_s, sigma)

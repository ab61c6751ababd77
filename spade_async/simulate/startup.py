"""What a configuration's bounds will do, said before anything runs (Little's law, `natural_age`).

Lengths are not known yet. They are taken as log-normal with sigma 1 around half the token limit and
cut at the limit; slots as those that can be filled at once, which `generator.concurrent_tasks` and
`sandbox.workers` also limit.
"""

from __future__ import annotations

import math

from spade_async.config.schema import Config
from spade_async.simulate.durations import Durations, LogNormal
from spade_async.simulate.natural_age import FREE_FROM, AgeCheck, RoleLoad, Verdict, check_bounds

SIGMA = 1.0
"""Of the logarithm of lengths, when nothing better is known."""
VALIDITY = 0.8
"""Share of designs that are played, when nothing better is known."""


def load_of(
    config: Config,
    *,
    design: Durations | None = None,
    episode: Durations | None = None,
    validity: float = VALIDITY,
) -> RoleLoad:
    """The work of a configuration's step; durations as described above unless given."""
    agent, designer = config.agent, config.designer
    turns = agent.max_turns * agent.max_new_tokens_per_turn
    return RoleLoad(
        slots=usable_slots(config) * config.generator.count,
        agent_quota=agent.groups_per_step,
        designer_quota=designer.groups_per_step,
        group_size=designer.group_size,
        episodes=agent.seeds_per_environment,
        pool_share=agent.pool_share,
        validity=validity,
        design_s=design or _lengths(designer.max_new_tokens),
        episode_s=episode or _lengths(turns),
    )


def usable_slots(config: Config) -> int:
    """Sequences that one generator can have in flight."""
    episodes = config.generator.concurrent_tasks * config.agent.seeds_per_environment
    return min(config.engine.slots, _workers(config), episodes)


def _workers(config: Config) -> int:
    """Sessions of the jail at once; a scripted run without a jail has no such limit."""
    if config.engine.kind == "scripted" and not config.scripted.jail:
        return config.engine.slots
    return config.sandbox.workers


def bound_lines(config: Config, checks: list[AgeCheck] | None = None) -> list[str]:
    """One sentence per role: what its bound does, with the keys and the numbers that decide it."""
    if config.async_.bounds == (0, 0):
        return ["staleness: both bounds are 0, the synchronous mode"]
    found = checks if checks is not None else check_bounds(load_of(config), *config.async_.bounds)
    return [_line(config, check) for check in found]


def _line(config: Config, check: AgeCheck) -> str:
    slots = usable_slots(config) * config.generator.count
    quota_key = f"{check.role}.groups_per_step"
    quota = config.agent.groups_per_step
    if check.role == "designer":
        quota = config.designer.groups_per_step
    key = check.key if config.async_.staleness is None else "async.staleness"
    value = check.bound if config.async_.staleness is None else config.async_.staleness
    start = (
        f"staleness: {check.role} groups are about {check.natural_age:.1f} steps old by themselves "
        f"({_slots(config, slots)}, {quota_key}={quota}); {key}={value}"
    )
    if check.bound != value:
        start += f" (a bound of {check.bound})"
    free = math.ceil(FREE_FROM * check.natural_age)
    if key == "async.staleness" and check.role == "designer":
        free = math.ceil(free / 2)
    if check.verdict is Verdict.FREE:
        return f"{start} is free: raising it changes nothing"
    if check.verdict is Verdict.TIGHT:
        return f"{start} cuts into the tail: free from {free} on"
    return (
        f"{start} will throttle the generators: free from {free} on; fewer slots, or a larger "
        f"{quota_key}, are fresher at the same rate"
    )


def _slots(config: Config, slots: int) -> str:
    """The key that limits what is in flight."""
    usable = usable_slots(config)
    if usable == config.engine.slots:
        key = f"engine.slots={config.engine.slots}"
    elif usable == _workers(config):
        key = f"sandbox.workers={config.sandbox.workers}"
    else:
        key = f"generator.concurrent_tasks={config.generator.concurrent_tasks}"
    return key if config.generator.count == 1 else f"{key}, {slots} over all generators"


def _lengths(limit: int) -> LogNormal:
    return LogNormal(max(limit / 2.0, 0.5), SIGMA, float(limit))

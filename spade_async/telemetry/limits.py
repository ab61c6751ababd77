"""One sentence: what limits this run now, and the knob to turn."""

from __future__ import annotations

from dataclasses import dataclass

BUSY = 0.15
"""A side that is idle less than this share of the time is taken as the busy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFactors:
    """What was seen over the last steps; shares are of wall time in [0, 1], None when unknown."""

    learner_idle_share: float | None
    """Learner waits for a batch."""
    generator_idle_share: float | None
    """Engines have nothing to decode."""
    bound_wait_share: float | None = None
    """Generators have credit and the staleness bound (or a quota) lets no task out."""
    jail_wait_share: float | None = None
    """Part of an episode's time that is spent waiting in or for the jail."""
    jail_queue: float | None = None
    """Calls waiting for a free worker."""
    agent_bound: int = 0
    """Effective staleness bound of the agent, named in the advice."""
    generators: int = 1
    workers: int = 1
    """Jail workers per generator."""


def limiting(factors: LimitFactors) -> str:
    """Name the limit (learner, generator, bound or jail) with its figure and its knob.

    The side that never waits is the limit. When both wait for each other it is the bound; when
    engines wait while the learner does too, and time goes into the jail, it is the jail.
    """
    learner, generator = factors.learner_idle_share, factors.generator_idle_share
    if learner is None or generator is None:
        return "not known yet: the first steps are not done"
    bound = factors.bound_wait_share or 0.0
    jail = factors.jail_wait_share or 0.0
    if learner < BUSY and learner <= generator:
        return (
            f"learner: it waits only {learner:.0%} of the time (generators idle {generator:.0%}); "
            "raise learner.threads or lower agent.groups_per_step"
        )
    if generator < BUSY:
        return (
            f"generator: engines are idle only {generator:.0%} of the time (learner idle "
            f"{learner:.0%}); raise generator.count (now {factors.generators}) or engine.slots"
        )
    if jail >= bound and (jail >= BUSY or (factors.jail_queue or 0.0) >= 1.0):
        return (
            f"jail: episodes spend {jail:.0%} of their time in it (learner idle {learner:.0%}, "
            f"engines idle {generator:.0%}); raise sandbox.workers (now {factors.workers})"
        )
    if bound >= BUSY or factors.agent_bound == 0:
        return (
            f"bound: learner ({learner:.0%} idle) and generators ({generator:.0%} idle) wait for "
            f"each other; raise async.agent_bound (now {factors.agent_bound})"
        )
    if learner <= generator:
        return (
            f"learner: it waits {learner:.0%} of the time, generators {generator:.0%}; "
            "raise learner.threads or lower agent.groups_per_step"
        )
    return (
        f"generator: learner waits {learner:.0%} of the time, engines {generator:.0%}; raise "
        f"generator.concurrent_tasks or generator.count (now {factors.generators})"
    )

"""What another bound, slot count or split would give: a grid of settings, each simulated.

Which option binds is found by trying: each is relaxed alone, and the one that shortens the step
most is named. When none helps, the learner is the limit if it never waits, else nothing in reach.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from spade_async.config.schema import Config
from spade_async.coordinator.control import most_sequences
from spade_async.errors import ConfigError
from spade_async.simulate.startup import usable_slots
from spade_async.simulate.two_roles import TwoRoleResult, TwoRoles, TwoRoleSetting
from spade_async.simulate.workload import Workload

HELPS = 0.02
"""Share by which a step must get shorter for an option to count as binding."""
BUSY = 0.03
"""Idle share of the learner up to which it is the limit."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting and what it gives."""

    setting: TwoRoleSetting
    result: TwoRoleResult
    binds: str
    """Key of the option that holds the step back; "" when it was not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Values to try; an empty one keeps that of the configuration."""

    bounds: Sequence[tuple[int, int]] = ()
    """(agent, designer)"""
    slots: Sequence[int] = ()
    generators: Sequence[int] = ()
    learner_speeds: Sequence[float] = ()
    splits: int | None = None
    """So many equal devices: each split into generators and one learner of the others' speed."""


def setting_of(config: Config, *, latency_s: float = 0.0) -> TwoRoleSetting:
    """The configuration's own setting."""
    agent_bound, designer_bound = config.async_.bounds
    has_controller = config.async_.controller and not config.async_.fill
    return TwoRoleSetting(
        agent_bound=agent_bound,
        designer_bound=designer_bound,
        agent_quota=config.agent.groups_per_step,
        designer_quota=config.designer.groups_per_step,
        group_size=config.designer.group_size,
        pool_share=config.agent.pool_share,
        delay=config.designer.reward.delay,
        slots=usable_slots(config),
        generators=config.generator.count,
        credit=config.generator.concurrent_tasks,
        most_sequences=most_sequences(config) if has_controller else None,
        fill=config.async_.fill,
        latency_s=latency_s,
    )


def settings(base: TwoRoleSetting, grid: Grid) -> list[TwoRoleSetting]:
    """Every combination, the base's own values where the grid says nothing.

    Raises:
        ConfigError: a bound within which no design would be paid.
    """
    shares: list[tuple[int, float]] = [
        (generators, speed)
        for generators in grid.generators or (base.generators,)
        for speed in grid.learner_speeds or (base.learner_speed,)
    ]
    if grid.splits is not None:
        shares = [(count, float(grid.splits - count)) for count in range(1, grid.splits)]
    bounds = grid.bounds or ((base.agent_bound, base.designer_bound),)
    for agent, designer in bounds:
        if base.delay and designer < base.delay + 1:
            raise ConfigError(
                f"--bounds={agent}:{designer}: with designer.reward.delay={base.delay} the "
                f"designer's bound must be at least {base.delay + 1}"
            )
    return [
        replace(
            base,
            agent_bound=agent_bound,
            designer_bound=designer_bound,
            slots=slots,
            generators=generators,
            learner_speed=speed,
            credit=_credit(base, slots),
            most_sequences=_sequences(base, slots),
        )
        for (agent_bound, designer_bound), slots, (generators, speed) in itertools.product(
            bounds, grid.slots or (base.slots,), shares
        )
    ]


def rows(
    wanted: Sequence[TwoRoleSetting],
    workload: Workload,
    *,
    steps: int,
    warm_up: int,
    finds_limit: bool = True,
    progress: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Simulate each setting over the same work.

    Raises:
        ConfigError: a setting in which a design group's plays would never fit.
    """
    found = []
    for setting in wanted:
        result = TwoRoles(setting, workload).run(steps, warm_up=warm_up)
        binds = _binds(setting, result, workload, steps, warm_up) if finds_limit else ""
        found.append(Row(setting, result, binds))
        progress()
    return found


def _binds(
    setting: TwoRoleSetting, result: TwoRoleResult, workload: Workload, steps: int, warm_up: int
) -> str:
    if result.learner_idle_share <= BUSY:
        return "learner"
    relaxed = {
        "async bounds": replace(
            setting,
            agent_bound=2 * setting.agent_bound + 1,
            designer_bound=2 * setting.designer_bound + 2,
        ),
        "engine.slots": replace(
            setting,
            slots=2 * setting.slots,
            credit=_credit(setting, 2 * setting.slots),
            most_sequences=_sequences(setting, 2 * setting.slots),
        ),
        "generator.count": replace(setting, generators=setting.generators + 1),
        "learner": replace(setting, learner_speed=1.5 * setting.learner_speed),
    }
    if setting.most_sequences is not None:
        relaxed["async.controller"] = replace(setting, most_sequences=None)
    step_s = {
        name: TwoRoles(other, workload).run(steps, warm_up=warm_up).step_s
        for name, other in relaxed.items()
    }
    best_s = min(step_s.values())
    if best_s > result.step_s * (1.0 - HELPS):
        return "nothing of these"
    # The first that does as well as the best: slots before a whole generator more.
    return next(name for name, found_s in step_s.items() if found_s <= best_s * (1.0 + HELPS))


def _sequences(base: TwoRoleSetting, slots: int) -> int | None:
    """The controller's cap follows the slots."""
    if base.most_sequences is None:
        return None
    return max(base.most_sequences + round(1.25 * (slots - base.slots)), 1)


def _credit(base: TwoRoleSetting, slots: int) -> int:
    """More slots are of no use without the credit to fill them."""
    return max(base.credit, -(-base.credit * slots // base.slots))

"""The two reference settings of docs/simulate.md, and their tables.

One role: a decode step of 10 ms + 0.02 ms per active sequence, log-normal lengths (sigma 1, mean
3,143 tokens, cap 16,384), 32 groups of 8 per step, a learner of 20,000 tokens/s, a pause of 1 s at
each publication. Two roles: log-normal delays (sigma 1, designs 20 s, episodes 10 s), 2 designer
groups of 4 and 8 agent groups per step, 8 plain and 8 hinted episodes per valid design, validity
.8, 128 slots, a learner of 30 s per step, pool share .25.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spade_async.simulate.durations import Fixed, LogNormal, mean
from spade_async.simulate.one_role import OneRoleResult, OneRoleSetting, simulate_one_role
from spade_async.simulate.two_roles import TwoRoleResult, TwoRoles, TwoRoleSetting
from spade_async.simulate.workload import DrawnWorkload

LENGTHS = LogNormal(2000.0, 1.0, 16_384.0)
ALL_RULES = ("admission", "drop", "cancel", "edf")
ONE_ROLE: tuple[tuple[int, int, float, Sequence[str]], ...] = (
    (0, 256, 20_000.0, ("edf",)),
    (1, 256, 20_000.0, ALL_RULES),
    (2, 256, 20_000.0, ALL_RULES),
    (4, 256, 20_000.0, ALL_RULES),
    (4, 512, 20_000.0, ALL_RULES),
    (5, 512, 20_000.0, ("edf",)),
    (6, 512, 20_000.0, ("edf",)),
    (8, 512, 20_000.0, ALL_RULES),
    (4, 256, 60_000.0, ALL_RULES),
    (8, 256, 60_000.0, ALL_RULES),
)
"""(bound, slots, learner tokens/s, rules)."""
BOUNDS = ((0, 0), (1, 2), (2, 4), (4, 8), (8, 8), (8, 16))
"""(agent, designer) bounds of the two-role table."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated."""

    seeds: int
    steps: int


ONE_ROLE_SIZE = Size(seeds=3, steps=200)
TWO_ROLES_SIZE = Size(seeds=3, steps=150)


def one_role(
    rule: str, bound: int, slots: int, *, learner_tokens_per_s: float = 20_000.0,
    size: Size = ONE_ROLE_SIZE,
) -> list[OneRoleResult]:  # fmt: skip
    """The one-role setting under a rule, once per seed; no warm-up."""
    setting = OneRoleSetting(
        rule=rule, bound=bound, slots=slots, lengths=LENGTHS,
        learner_tokens_per_s=learner_tokens_per_s,
    )  # fmt: skip
    return [
        simulate_one_role(setting, steps=size.steps, warm_up=0, seed=seed)
        for seed in range(size.seeds)
    ]


def two_roles(
    agent_bound: int, designer_bound: int, *, validity: float = 0.8, size: Size = TWO_ROLES_SIZE
) -> list[TwoRoleResult]:
    """The two-role setting under the coordinator's schedule, once per seed; no warm-up."""
    setting = TwoRoleSetting(
        agent_bound=agent_bound, designer_bound=designer_bound, agent_quota=8, designer_quota=2,
        group_size=4, pool_share=0.25, slots=128,
    )  # fmt: skip
    return [
        TwoRoles(setting, two_role_workload(seed, validity)).run(size.steps)
        for seed in range(size.seeds)
    ]


def two_role_workload(seed: int, validity: float = 0.8) -> DrawnWorkload:
    """The delays of the two-role setting."""
    return DrawnWorkload(
        seed=seed,
        designs=LogNormal.of_mean(20.0, 1.0),
        episodes=LogNormal.of_mean(10.0, 1.0),
        learner=Fixed(30.0),
        validity=validity,
    )


def tables(*, one_role_size: Size = ONE_ROLE_SIZE, two_roles_size: Size = TWO_ROLES_SIZE) -> str:
    """Both tables as Markdown, from new simulations; takes about a minute."""
    return "\n".join([*_one_role_table(one_role_size), "", *_two_role_table(two_roles_size), ""])


def _one_role_table(size: Size) -> Iterable[str]:
    yield (
        "| S, slots | learner tokens/s | rule | mean / max age | over | waste | length | rate | "
        "idle |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for bound, slots, speed, rules in ONE_ROLE:
        for rule in rules:
            found = one_role(rule, bound, slots, learner_tokens_per_s=speed, size=size)
            yield (
                f"| {bound}, {slots} | {speed:,.0f} | {rule} "
                f"| {mean(r.mean_age for r in found):.1f} / {max(r.max_age for r in found)} "
                f"| {mean(r.over_bound_share for r in found):.0%} "
                f"| {mean(r.waste_share for r in found):.0%} "
                f"| {mean(r.length_ratio for r in found):.2f} "
                f"| {mean(r.trained_tokens_per_s for r in found):,.0f} "
                f"| {mean(r.learner_idle_share for r in found):.0%} |"
            )


def _two_role_table(size: Size) -> Iterable[str]:
    yield (
        "| bounds agent, designer | s/step | speed-up | learner idle | age agent mean / max | "
        "age designer mean / max | over | discarded | rollouts/h |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    first_s: float | None = None
    for agent, designer in BOUNDS:
        found = two_roles(agent, designer, size=size)
        step_s = mean(r.step_s for r in found)
        first_s = first_s or step_s
        yield (
            f"| {agent}, {designer} | {step_s:.1f} | {first_s / step_s:.1f} "
            f"| {mean(r.learner_idle_share for r in found):.0%} "
            f"| {_ages([(r.agent_mean_age, r.agent_max_age) for r in found])} "
            f"| {_ages([(r.designer_mean_age, r.designer_max_age) for r in found])} "
            f"| {sum(r.num_over_bound for r in found)} | {sum(r.num_discarded for r in found)} "
            f"| {mean(r.rollouts_per_hour for r in found):,.0f} |"
        )


def _ages(pairs: Iterable[tuple[float | None, int | None]]) -> str:
    known = [(average, most) for average, most in pairs if average is not None and most is not None]
    return f"{mean(a for a, _ in known):.1f} / {max(m for _, m in known)}"

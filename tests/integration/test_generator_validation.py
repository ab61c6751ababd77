"""Validation and the leak check through the real jail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from spade_async.designer.hint import leak_share
from spade_async.environment.validate import ValidationReport, validate
from spade_async.sandbox import Pool, SandboxPolicy
from spade_async.types import Stage
from tests.support import environments

pytestmark = pytest.mark.timeout(60)
T = TypeVar("T")
POLICY = SandboxPolicy(
    num_workers=4, spares=2, wall_s_per_call=1.0, cpu_s_per_call=0.5, load_wall_s=2.0
)


async def in_jail(use: Callable[[Pool], Awaitable[T]]) -> T:
    async with Pool(POLICY) as pool:
        return await use(pool)


def run(source: str, *, max_turns: int = 4) -> ValidationReport:
    return asyncio.run(in_jail(lambda p: validate(p, source, seed=1, max_turns=max_turns)))


def test_each_good_program_passes_every_stage_in_order() -> None:
    async def both(pool: Pool) -> list[ValidationReport]:
        programs = (environments.GOOD, environments.MULTI_TURN, environments.LEAKING)
        return [await validate(pool, p, seed=1, num_seeds=2, max_turns=4) for p in programs]

    for report in asyncio.run(in_jail(both)):
        assert report.rejection is None, report.rejection
        assert [s.stage for s in report.stages] == [
            Stage.LOAD,
            Stage.RESET,
            Stage.STEP,
            Stage.DETERMINISM,
            Stage.TERMINATION,
            Stage.REWARD,
            Stage.HINT,
        ]
        assert set(report.jail.outcomes) == {"finished"}


def test_each_bad_program_is_rejected_at_its_stage() -> None:
    async def all_of_them(pool: Pool) -> dict[str, ValidationReport]:
        names = list(environments.REJECTED)
        tasks = [validate(pool, environments.REJECTED[n][0], seed=1, max_turns=4) for n in names]
        return dict(zip(names, await asyncio.gather(*tasks), strict=True))

    reports = asyncio.run(in_jail(all_of_them))
    found = {n: r.rejection.stage.value if r.rejection else "valid" for n, r in reports.items()}
    assert found == {name: stage for name, (_, stage) in environments.REJECTED.items()}
    for name, report in reports.items():
        assert report.rejection is not None
        assert "\n" not in report.rejection.reason, name
        assert all(s.ok for s in report.stages[:-1]), name


def test_a_program_without_hint_is_valid_where_no_hint_is_asked_of_it() -> None:
    async def use(pool: Pool) -> ValidationReport:
        return await validate(pool, environments.NO_HINT, seed=1, max_turns=1, hint_mode="self")

    assert asyncio.run(in_jail(use)).rejection is None


def test_a_hint_that_is_the_answer_leaks_on_every_seed_and_another_on_none() -> None:
    async def use(pool: Pool) -> tuple[float, float, float]:
        seeds = [11, 12, 13, 14]
        return (
            await leak_share(pool, environments.LEAKING, None, seeds),
            await leak_share(pool, environments.GOOD, None, seeds),
            await leak_share(pool, environments.GOOD, "Add both numbers.", seeds),
        )

    assert asyncio.run(in_jail(use)) == (1.0, 0.0, 0.0)

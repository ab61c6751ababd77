"""The game that the designer's prompt shows as an example, in the real jail."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.designer.prompt_example import MIN_TURNS, example
from spade_async.environment.session import JailUse, open_session
from spade_async.environment.validate import validate
from spade_async.sandbox import Pool, SandboxPolicy

pytestmark = pytest.mark.timeout(120)
SOURCE = example(MIN_TURNS, with_hint=True)


async def play(pool: Pool, seed: int) -> tuple[bool, float | None]:
    """Walk to the right and drop each parcel where its colour is read; (terminated, reward)."""
    async with open_session(pool, SOURCE, seed, JailUse()) as session:
        seen = (await session.reset()).observation
        left = seen.split("of its colour: ")[1].split(".")[0].split()
        for _ in range(5):
            colour = (await session.step("\\boxed{go right}")).observation.split(".")[0].split()[-1]
            if colour in left:
                left.remove(colour)
                reply = await session.step(f"\\boxed{{drop {colour}}}")
                if reply.terminated:
                    return reply.terminated, reply.reward
    raise AssertionError("both houses lie on the way")


def test_the_example_passes_every_check_and_is_won_and_lost_as_it_says() -> None:
    async def use() -> None:
        policy = SandboxPolicy(num_workers=4, spares=2, load_wall_s=5.0, max_turns=MIN_TURNS)
        async with Pool(policy) as pool:
            report = await validate(pool, SOURCE, seed=1, num_seeds=3, max_turns=MIN_TURNS)
            assert report.rejection is None, report.rejection
            assert [await play(pool, seed) for seed in range(4)] == [(True, 1.0)] * 4
            async with open_session(pool, SOURCE, 0, JailUse()) as session:
                seen = (await session.reset()).observation
                parcel = seen.split("of its colour: ")[1].split()[0]
                lost = await session.step(f"\\boxed{{drop {parcel}}}")
                assert (lost.terminated, lost.reward) == (True, 0.0)

    asyncio.run(use())

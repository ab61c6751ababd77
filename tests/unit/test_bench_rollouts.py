"""The arithmetic of the bench of rollouts, and that both drivers play the same episodes."""

from __future__ import annotations

import pytest

from benches.cycle.drivers import Continuous, Driven, Marks, Phased
from benches.cycle.parts import Cycle, opened
from tests.support.asynchronous import run_async


def test_rates_and_shares_are_differences_of_two_moments() -> None:
    begin = Marks(at_s=10.0, episodes=100, turns=800, cpu_s=1.0, slots_busy_s=3.0)
    end = Marks(at_s=20.0, episodes=300, turns=2400, cpu_s=1.8, slots_busy_s=12.3)
    driven = Driven(begin, end)
    assert driven.per_hour == 200 / 10.0 * 3600.0
    assert driven.slot_share == pytest.approx(0.93)
    assert driven.cpu_ms_per_episode == pytest.approx(4.0)


@run_async
async def test_both_drivers_play_the_same_episodes_with_the_same_ends() -> None:
    config = Cycle(turns=2, episode_s=0.0, jail=False).config()
    async with opened(config) as context:
        phased = await Phased(context).run(3, 0, 0.0)
    async with opened(config) as context:
        continuous = await Continuous(context).run(3, 0, 0.0, 1)
        played = context.counters.episodes_done
    assert phased.outcomes == continuous.outcomes == {"finished": played}
    # 24 designs, 8 episodes in either arm of each valid one; the seed makes at least 12 valid.
    assert played % 16 == 0
    assert 12 * 16 <= played <= 24 * 16
    assert set(phased.phases_s) == {"generate", "validate", "play", "train"}

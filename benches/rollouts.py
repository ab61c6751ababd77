"""Rollouts per hour of the generator, against the same cycle with a barrier after each phase.

Both drivers call the generator's own code on the same jail, the same 64 slots and the same scripted
latencies; every episode is jailed. Only the barriers differ: "phased" generates all designs,
validates all, plays all and trains, "continuous" plays what is valid at once and trains a cycle
when it is in, nine cycles deep. The ceiling is all slots always full. `no_waiting` takes all
latencies away: what is left is work, of this process and of the jail. Meaning of every figure:
docs/bench_overlap.md.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import os
import pstats
import re
import time
from typing import Any

from benches.cycle.drivers import PHASES, Continuous, Driven, Phased
from benches.cycle.parts import DESIGNS, EPISODES, Cycle, opened

AT_TOP = True
TURNS = 8
WINDOW = 9
"""Cycles in flight of the continuous driver: bound 8 and the one in training."""
CEILING_GOAL, CPU_MS_GOAL, RATE_GOAL = 0.93, 5.0, 700_000
_VALIDITY = 0.8


def run(quick: bool) -> dict[str, Any]:
    """Both drivers, then the speed without waiting; `quick` plays a few short cycles."""
    cycles, episode_s = (14, 0.1) if quick else (45, 0.8)
    return asyncio.run(_run(cycles, episode_s, quick))


def table(result: dict[str, Any]) -> str:
    """The two drivers side by side, then the work of an episode."""
    lines = [f"{'driver':>12} {'rollouts/h':>11} {'of the ceiling':>14} {'CPU ms/episode':>15}"]
    for name in ("phased", "continuous"):
        row = result[name]
        lines.append(
            f"{name:>12} {row['rollouts_per_hour']:>11,.0f} {row['share_of_ceiling']:>14.1%} "
            f"{row['cpu_ms_per_episode']:>15.2f}"
        )
    phases = result["phased"]["phases_s"]
    ratio = result["continuous"]["rollouts_per_hour"] / result["phased"]["rollouts_per_hour"]
    lines += [
        "phases, s per cycle: " + ", ".join(f"{name} {phases[name]:.2f}" for name in PHASES),
        f"continuous over phased: {ratio:.2f}; ceiling {result['ceiling_per_hour']:,.0f} per hour "
        f"({result['slots']} slots, {result['turns']} turns of {result['turn_s'] * 1e3:.0f} ms)",
    ]
    for row in result["no_waiting"]:
        lines.append(
            f"no waiting, {row['turns']} turn(s), {'jailed' if row['jail'] else 'no jail'}: "
            f"{row['rollouts_per_hour']:,.0f} rollouts/h, CPU of ours "
            f"{row['cpu_ms_per_episode']:.2f} ms, of all {row['all_cpu_ms_per_episode']:.2f} ms: "
            f"{row['per_hour_and_two_cores']:,.0f} per hour and two cores"
        )
    return "\n".join([*lines, "", result["profile"]])


async def _run(cycles: int, episode_s: float, quick: bool) -> dict[str, Any]:
    setting = Cycle(turns=TURNS, episode_s=episode_s)
    config = setting.config()
    played = DESIGNS * _VALIDITY * 2 * EPISODES
    # The learner is twice as fast as the slots, so that the generator is what limits.
    learner_s = 0.5 * played * episode_s / setting.slots
    async with opened(config) as context:
        few = 5 if quick else 12
        phased = await Phased(context).run(few, 1, learner_s)
    async with opened(config) as context:
        continuous = await Continuous(context).run(cycles, WINDOW // 2, learner_s, WINDOW)
    return {
        "slots": setting.slots,
        "turns": TURNS,
        "turn_s": episode_s / TURNS,
        "learner_s": learner_s,
        "ceiling_per_hour": continuous.per_hour / continuous.slot_share,
        "phased": _row(phased) | {"phases_s": phased.phases_s},
        "continuous": _row(continuous),
        "no_waiting": [
            await _no_waiting(turns, jail, 3 if quick else 20)
            for turns, jail in ((TURNS, True), (1, True), (TURNS, False))
        ],
        "profile": await _profile(2 if quick else 6),
    }


def _row(driven: Driven) -> dict[str, Any]:
    return {
        "rollouts_per_hour": driven.per_hour,
        "share_of_ceiling": driven.slot_share,
        "cpu_ms_per_episode": driven.cpu_ms_per_episode,
        "episodes": driven.episodes,
        "seconds": driven.seconds,
        "outcomes": driven.outcomes,
    }


async def _no_waiting(turns: int, jail: bool, cycles: int) -> dict[str, Any]:
    """The rate when nothing takes time but work, and what that work is."""
    config = Cycle(turns=turns, episode_s=0.0, jail=jail).config()
    async with opened(config) as context:
        await Continuous(context).run(1, 0, 0.0, 1)
        cpu_s = _all_cpu_s()
        began_s, own_s = time.monotonic(), time.process_time()
        before = context.counters.episodes_done
        await Continuous(context).run(cycles, 0, 0.0, 1)
        seconds = time.monotonic() - began_s
        own_s = time.process_time() - own_s
        cpu_s = _all_cpu_s() - cpu_s
        episodes = context.counters.episodes_done - before
    return {
        "turns": turns,
        "jail": jail,
        "episodes": episodes,
        "rollouts_per_hour": episodes / seconds * 3600.0,
        "cpu_ms_per_episode": 1e3 * own_s / episodes,
        "all_cpu_ms_per_episode": 1e3 * cpu_s / episodes,
        # Work is divisible among generators: two cores have two seconds of CPU per second.
        "per_hour_and_two_cores": 2 * 3600.0 / (cpu_s / episodes),
        "designs": cycles * DESIGNS,
    }


def _all_cpu_s() -> float:
    """CPU seconds of this process and everything below it, living or dead."""
    from spade_async.supervisor.processes import descendants

    times = os.times()
    living = sum(process.cpu_s for process in descendants(os.getpid()))
    return times.user + times.system + times.children_user + times.children_system + living


async def _profile(cycles: int) -> str:
    """Where this process spends its own CPU, without waiting, by function."""
    config = Cycle(turns=TURNS, episode_s=0.0).config()
    async with opened(config) as context:
        profile = cProfile.Profile()
        profile.enable()
        await Continuous(context).run(cycles, 0, 0.0, 1)
        profile.disable()
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(14)
    lines = [line for line in out.getvalue().splitlines() if line.strip()]
    return "\n".join(_without_place(line) for line in lines[:2] + lines[4:])


def _without_place(line: str) -> str:
    """A line of the profile with files named from the package on, wherever it is installed."""
    line = line.replace(os.getcwd() + "/", "")
    return re.sub(r"/\S*?/(?:site-packages|lib/python[\d.]+)/(?!site-packages)", "", line)

"""The same cycles with barriers between the phases, and without."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from benches.cycle.parts import RememberingEngine, designs, plays
from spade_async.engine import scripted_domain
from spade_async.engine.protocol import Sampling
from spade_async.generator.context import GeneratorContext
from spade_async.generator.design_task import run_design
from spade_async.generator.play_task import run_play
from spade_async.transport.messages import DesignResult, EpisodeResult, PlayTask

PHASES = ("generate", "validate", "play", "train")


@dataclass(slots=True)
class Marks:
    """Counters at one moment; differences of two give the figures."""

    at_s: float
    episodes: int
    turns: int
    cpu_s: float
    slots_busy_s: float


@dataclass(slots=True)
class Driven:
    """What a driver did between its warm-up and its end."""

    begin: Marks
    end: Marks
    phases_s: dict[str, float] = field(default_factory=dict)
    """Seconds per cycle, by phase; only of the driver that has phases."""
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of the measured stretch."""
        return self.end.at_s - self.begin.at_s

    @property
    def episodes(self) -> int:
        """Finished in it."""
        return self.end.episodes - self.begin.episodes

    @property
    def per_hour(self) -> float:
        """Episodes per hour."""
        return self.episodes / self.seconds * 3600.0

    @property
    def slot_share(self) -> float:
        """Share of the slots in use: the rate over the rate with all slots always full."""
        return (self.end.slots_busy_s - self.begin.slots_busy_s) / self.seconds

    @property
    def cpu_ms_per_episode(self) -> float:
        """CPU of this process (engine's script included, jail not), over what it played."""
        return 1e3 * (self.end.cpu_s - self.begin.cpu_s) / max(self.episodes, 1)


class _Driver:
    def __init__(self, context: GeneratorContext) -> None:
        self._context = context
        self._turns = 0
        self._outcomes: Counter[str] = Counter()

    async def _send(self, result: EpisodeResult) -> None:
        self._turns += result.num_turns
        self._outcomes[result.outcome if result.missing_reason is None else "missing"] += 1

    def _marks(self) -> Marks:
        stats = self._context.player.engine.stats()
        return Marks(
            time.monotonic(), self._context.counters.episodes_done, self._turns,
            time.process_time(), stats["busy_s"],
        )  # fmt: skip

    async def _play(self, tasks: Iterable[PlayTask]) -> None:
        await asyncio.gather(*(run_play(self._context, task, self._send) for task in tasks))


class Phased(_Driver):
    """Generate all, validate all, play all, train; then the next cycle."""

    async def run(self, cycles: int, warm_up: int, learner_s: float) -> Driven:
        """So many cycles; the figures are of those after the warm-up."""
        context = self._context
        begin = self._marks()
        spent: Counter[str] = Counter()
        for cycle in range(cycles):
            if cycle == warm_up:
                begin, spent = self._marks(), Counter()
            moments = [time.monotonic()]
            remembering: Any = RememberingEngine(context.player.engine)  # type: ignore[arg-type]
            tasks = designs(context.config, cycle)
            prompt = context.player.tokens.encode_prompt(
                scripted_domain.designer_messages(skill="x", document="", exemplars=[])
            )
            stops = context.player.tokens.stop_token_ids
            await asyncio.gather(
                *(
                    remembering.remember(prompt, Sampling(1.0, t.max_new_tokens, stops, t.seed))
                    for t in tasks
                )
            )
            moments.append(time.monotonic())
            player = dataclasses.replace(context.player, engine=remembering)
            checking = dataclasses.replace(context, player=player)
            done = await asyncio.gather(*(run_design(checking, task) for task in tasks))
            moments.append(time.monotonic())
            await self._play(play for design in done for play in plays(context.config, design))
            moments.append(time.monotonic())
            await asyncio.sleep(learner_s)
            moments.append(time.monotonic())
            for name, a, b in zip(PHASES, moments, moments[1:], strict=False):
                spent[name] += b - a  # type: ignore[assignment]
        phases = {name: spent[name] / (cycles - warm_up) for name in PHASES}
        return Driven(begin, self._marks(), phases, dict(self._outcomes))


class Continuous(_Driver):
    """As a run does: what is valid is played at once, training waits for nobody else's cycle."""

    async def run(self, cycles: int, warm_up: int, learner_s: float, window: int) -> Driven:
        """So many cycles; a cycle begins when the one `window` before it is trained.

        Figures are from the training of cycle `warm_up` to that of the last cycle with a full
        window behind it: the end, when nothing more is begun, is left out.
        """
        running = [asyncio.create_task(self._cycle(c)) for c in range(min(window, cycles))]
        begin = end = self._marks()
        for cycle in range(cycles):
            await running[cycle]
            await asyncio.sleep(learner_s)
            if cycle + window < cycles:
                running.append(asyncio.create_task(self._cycle(cycle + window)))
            if cycle + 1 == warm_up:
                begin = self._marks()
            if cycle + 1 == cycles - window:
                end = self._marks()
        return Driven(begin, end, outcomes=dict(self._outcomes))

    async def _cycle(self, cycle: int) -> None:
        tasks = designs(self._context.config, cycle)

        async def one(task: Any) -> None:
            design: DesignResult = await run_design(self._context, task)
            await self._play(plays(self._context.config, design))

        await asyncio.gather(*(one(task) for task in tasks))

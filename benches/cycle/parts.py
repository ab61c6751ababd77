"""What both drivers share: the generator's own parts and the tasks of each cycle."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from spade_async.agent.episode import Player
from spade_async.config.load import resolve
from spade_async.config.schema import Config
from spade_async.domain import load_domain
from spade_async.engine.protocol import Generation, Sampling
from spade_async.engine.scripted_codec import ScriptedCodec
from spade_async.engine.scripted_paced import PacedEngine
from spade_async.environment.contract import environment_id
from spade_async.generator.context import GeneratorContext
from spade_async.generator.engines import make_jail
from spade_async.seeds import derive
from spade_async.transport.messages import DesignResult, DesignTask, PlayTask
from spade_async.types import Arm

DESIGNS, EPISODES = 8, 8
"""Per cycle, per arm of a valid design."""
WORKERS = 112
"""More than slots: a worker is held while its episode waits for a slot."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The setting of both drivers."""

    turns: int
    episode_s: float
    """Mean of the time an episode holds a slot, over all its turns; 0 waits for nothing."""
    slots: int = 64
    jail: bool = True
    turn_tokens: float = 20.0

    def config(self) -> Config:
        """The run's configuration that this setting is."""
        token_s = self.episode_s / self.turns / self.turn_tokens
        values = {
            "agent.max_new_tokens_per_turn": round(5.2 * self.turn_tokens),
            "agent.max_turns": self.turns,
            "designer.max_new_tokens": 1000,
            "engine.slots": self.slots,
            "model.max_context_tokens": 8192,
            "sandbox.spares": 16,
            "sandbox.workers": WORKERS,
            "scripted.design_tokens": 2 * self.turn_tokens,
            "scripted.episode_tokens": self.turn_tokens,
            "scripted.jail": str(self.jail).lower(),
            "scripted.token_s": token_s,
            "scripted.turns": self.turns,
        }
        path = Path(__file__).parents[2] / "configs" / "scripted.toml"
        return resolve(path, [f"{key}={value}" for key, value in values.items()])


@asynccontextmanager
async def opened(config: Config) -> AsyncIterator[GeneratorContext]:
    """The generator's engine, codec and jail, started; weights are loaded."""
    pool = make_jail(config)
    engine = PacedEngine(config.scripted, slots=config.engine.slots)
    async with pool:
        player = Player(engine, ScriptedCodec(), pool, load_domain(config.domain.hook))
        context = GeneratorContext(config, player)
        await context.gate.open(0)
        yield context
        await engine.close()


def designs(config: Config, cycle: int) -> list[DesignTask]:
    """The design tasks of one cycle."""
    return [
        DesignTask(
            task_id=(task_id := f"d-{cycle}.{i}"),
            group_id=f"d-{cycle}",
            min_version=0,
            skill="x",
            document="",
            document_id="",
            exemplars=[],
            temperature=1.0,
            max_new_tokens=config.designer.max_new_tokens,
            seed=derive(config.run.seed, "design", task_id),
        )
        for i in range(DESIGNS)
    ]


def plays(config: Config, design: DesignResult) -> list[PlayTask]:
    """Both arms of a valid design; nothing for another."""
    if design.rejection is not None or design.missing_reason is not None:
        return []
    seeds = [derive(config.run.seed, design.task_id, i) % 10**9 for i in range(EPISODES)]
    return [
        PlayTask(
            task_id=f"{design.task_id}.{arm}",
            group_id=f"{design.task_id}.play",
            environment_id=environment_id(design.source),
            source=design.source,
            hint=design.hint,
            hint_mode="environment",
            arm=arm,
            seeds=seeds,
            min_version=0,
            max_turns=config.agent.max_turns,
            max_new_tokens=config.agent.max_new_tokens_per_turn,
            temperature=1.0,
            purpose="train" if arm is Arm.NO_HINT else "measure",
            seed=derive(config.run.seed, "play", design.task_id, arm),
        )
        for arm in (Arm.NO_HINT, Arm.WITH_HINT)
    ]


class RememberingEngine:
    """Answers at once what was generated before; lets a driver validate apart from generating."""

    def __init__(self, engine: PacedEngine) -> None:
        self._engine = engine
        self._known: dict[int, Generation] = {}

    async def remember(self, prompt_ids: list[int], sampling: Sampling) -> None:
        """Generate now, answer later."""
        self._known[sampling.seed] = await self._engine.generate(prompt_ids, sampling)

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """What is remembered under the seed, or a new reply."""
        known = self._known.pop(sampling.seed, None)
        return known or await self._engine.generate(prompt_ids, sampling)

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

"""What the tasks of one generator share: engine, jail, domain, loaded version, counters."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from spade_async.agent.episode import Player
from spade_async.agent.prompt import TokenCodec
from spade_async.config.schema import Config
from spade_async.environment.session import JailUse
from spade_async.generator.blacklist import Blacklist


class VersionGate:
    """Holds tasks back until the weights they were meant for are loaded."""

    def __init__(self) -> None:
        self.loaded: int = -1
        """Packed version that is loaded; -1 before the first."""
        self.num_waiting = 0
        """Tasks that are held back now."""
        self._closed = False
        self._changed = asyncio.Condition()

    async def open(self, packed: int) -> None:
        """These weights are loaded now."""
        async with self._changed:
            self.loaded = packed
            self._changed.notify_all()

    async def close(self) -> None:
        """No more weights will come: tasks that are held back, now or later, are cancelled."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def wait(self, min_version: int) -> None:
        """Return once the loaded version is `min_version` or later.

        Packed versions order as (branch, step): a later branch replaces all of an earlier one.
        """
        if self.loaded >= min_version:
            return
        self.num_waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._closed or self.loaded >= min_version)
        finally:
            self.num_waiting -= 1
        if self.loaded < min_version:
            raise asyncio.CancelledError(f"no weights of version {min_version} will come")


@dataclass(slots=True)
class Counters:
    """What this process did since its start."""

    tasks_started: int = 0
    tasks_done: int = 0
    episodes_done: int = 0
    designs_done: int = 0
    missing: int = 0
    """Samples without a result by our own fault."""
    jail: JailUse = field(default_factory=JailUse)
    running: dict[str, float] = field(default_factory=dict)
    """Task id -> monotonic start in seconds."""
    cut_tokens: Counter[str] = field(default_factory=Counter)
    """Task id -> tokens sampled for results that will not be sent, until that is reported."""

    def oldest_task_s(self) -> float:
        """Age of the oldest running task; 0 when there is none."""
        return time.monotonic() - min(self.running.values(), default=time.monotonic())


@dataclass(frozen=True, slots=True)
class GeneratorContext:
    """Shared by all tasks; made once by the process."""

    config: Config
    player: Player
    """Its codec is the agent's."""
    designer_tokens: TokenCodec | None = None
    """Codec of the designer's prompts; None: as the player's."""
    brief_tokens: TokenCodec | None = None
    """Codec for replies of a few words (hints); None: as the player's."""

    gate: VersionGate = field(default_factory=VersionGate)
    counters: Counters = field(default_factory=Counters)
    blacklist: Blacklist | None = None
    """Under `run.compat = "reference"`."""

    @property
    def design_codec(self) -> TokenCodec:
        """Codec of what the designer, and who reviews its programs, are asked."""
        return self.designer_tokens or self.player.tokens

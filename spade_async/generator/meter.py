"""How long one design or episode took, and how much of that was the engine's: for the simulator.

Stands between a task and the engine; everything but `generate` goes straight through.
"""

from __future__ import annotations

import time
from typing import Any, cast

from spade_async.engine.protocol import Engine, Generation, GenerationCancelled, Sampling


class EngineMeter:
    """Adds up the engine's time over the requests of one sample; starts when it is made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._since_s = time.monotonic()
        self._engine_s = 0.0
        self._queue_s = 0.0
        self.num_tokens = 0
        """Tokens sampled so far, those of a request that was cancelled included."""

    def __getattr__(self, name: str) -> Any:
        """Whatever else the engine has."""
        return getattr(self._engine, name)

    def as_engine(self) -> Engine:
        """Itself, as what it stands for."""
        return cast(Engine, self)

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """As the engine's; its time counts, also when it fails."""
        start_s = time.monotonic()
        queue_s = 0.0
        try:
            generation = await self._engine.generate(prompt_ids, sampling)
            queue_s = generation.queue_s
            self.num_tokens += len(generation.token_ids)
        except GenerationCancelled as cancelled:
            self.num_tokens += cancelled.num_tokens
            raise
        finally:
            self._queue_s += queue_s
            self._engine_s += time.monotonic() - start_s - queue_s
        return generation

    def timing(self) -> dict[str, float]:
        """Seconds so far: in all, holding a slot of the engine, waiting for one."""
        return {
            "total_s": time.monotonic() - self._since_s,
            "engine_s": self._engine_s,
            "queue_s": self._queue_s,
        }

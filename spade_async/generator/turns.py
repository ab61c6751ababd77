"""A generator's side of a shared device: its engine sleeps while the learner trains.

Begins before the engine is loaded and ends after it is closed: the learner may need the device
before the generator is welcomed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from spade_async.cluster.turns import POLL_S, DeviceTurn
from spade_async.engine.protocol import Engine

log = logging.getLogger(__name__)


class Turns:
    """Watches for the learner. Make it with `begin`; then `watch` an engine until `end`."""

    def __init__(self, turn: DeviceTurn) -> None:
        self._turn = turn
        self._watching: asyncio.Task[None] | None = None
        self._awake = asyncio.Lock()
        """Held while the engine sleeps, or must not."""
        self.is_asleep = False
        """Whether the learner has the device."""
        self.slept_s = 0.0
        """Seconds that the engine has slept, begun sleep included once it has ended."""

    @classmethod
    async def begin(cls, run_dir: Path) -> Turns:
        """Wait for the device and take it."""
        turns = cls(DeviceTurn(run_dir))
        await turns._enter()
        return turns

    def watch(self, engine: Engine) -> None:
        """Let it sleep whenever the learner wants the device; `failed` tells when that breaks."""
        self._watching = asyncio.create_task(self._watch(engine))

    @property
    def failed(self) -> asyncio.Future[None]:
        """Never done, but with what the engine raised."""
        assert self._watching is not None
        return self._watching

    @property
    def staying_awake(self) -> asyncio.Lock:
        """Held by whoever needs an engine that answers at once; the learner then waits."""
        return self._awake

    async def end(self) -> None:
        """Watch no longer and give the device up. The engine is closed, or was never made."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._turn.close()

    async def _watch(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if not self._turn.is_wanted:
                continue
            async with self._awake:
                began = time.monotonic()
                await engine.sleep()
                self.is_asleep = True
                self._turn.leave()
                log.debug("the engine sleeps, %.3f s after it was asked", time.monotonic() - began)
                await self._enter()
                self.is_asleep = False
                await engine.wake()
                self.slept_s += time.monotonic() - began
                log.debug("the engine is awake again; it slept %.3f s in all", self.slept_s)

    async def _enter(self) -> None:
        # A lock of the kernel wakes no event loop.
        while not self._turn.try_enter():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

"""One version per sample (`async.in_flight = "finish"`): who still samples under which weights.

A sample takes a lease before its first token and every request of it is sampled under that version.
An engine keeps two weight sets alive, the newest and the one before it, and no more: a third set is
taken in once the last lease of the oldest has ended, so memory has a bound and a slow sample delays
weights instead of being thrown away. One event loop; when the holder of a lease is cancelled, the
lease ends with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from spade_async.errors import GenerationError


class Leases:
    """Counts the leases of each version.

    Args:
        version: gives the packed version that new leases get.
        is_closed: whether the engine has ended; whoever waits then fails.
    """

    def __init__(self, version: Callable[[], int], is_closed: Callable[[], bool]) -> None:
        self._version = version
        self._is_closed = is_closed
        self._counts: Counter[int] = Counter()
        self._changed = asyncio.Condition()

    def num(self, packed: int) -> int:
        """Samples that are under way on a version."""
        return self._counts[packed]

    @asynccontextmanager
    async def take(self, min_version: int) -> AsyncIterator[int]:
        """Hold the present version, once it is `min_version` or later.

        Raises:
            GenerationError: the engine was closed meanwhile.
        """
        if self._version() < min_version:
            await self._until(lambda: self._version() >= min_version)
        version = self._version()
        self._counts[version] += 1
        try:
            yield version
        finally:
            self._counts[version] -= 1
            if not self._counts[version]:
                del self._counts[version]
                await self.changed()

    async def free(self, packed: int) -> None:
        """Return when nobody samples under a version any more.

        Raises:
            GenerationError: the engine was closed meanwhile.
        """
        await self._until(lambda: not self._counts[packed])

    async def changed(self) -> None:
        """Look again: a lease ended, a version came, or the engine was closed."""
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed() or condition())
        if self._is_closed():
            raise GenerationError("the engine was closed while the request was in flight")


@asynccontextmanager
async def one_version(engine: Any, min_version: int) -> AsyncIterator[int | None]:
    """What `Sampling.version` is for all requests of one sample: None where swaps go under them."""
    leases: Leases | None = getattr(engine, "leases", None)
    if leases is None:
        yield None
        return
    async with leases.take(min_version) as version:
        yield version

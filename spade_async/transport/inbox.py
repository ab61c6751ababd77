"""Messages that were delivered and wait for the caller; waiting for one can be cancelled safely."""

from __future__ import annotations

import asyncio
from collections import deque

from spade_async.errors import TransportError
from spade_async.transport.channel import Received


class Inbox:
    """A queue whose items leave only in the same step in which the caller gets them."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._items: deque[Received] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False

    def put(self, item: Received) -> None:
        """Add an item."""
        self._items.append(item)
        self._changed.set()

    def take_nowait(self) -> Received | None:
        """First item, or None."""
        return self._items.popleft() if self._items else None

    async def take(self) -> Received:
        """First item, waiting for one.

        Raises:
            TransportError: closed and empty.
        """
        while not self._items:
            if self._is_closed:
                raise TransportError(f"{self._what} is closed")
            self._changed.clear()
            await self._changed.wait()
        return self._items.popleft()

    def close(self) -> None:
        """Let everyone who waits fail."""
        self._is_closed = True
        self._changed.set()

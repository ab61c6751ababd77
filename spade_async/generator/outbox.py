"""Results on their way to the coordinator: those of one task wait a moment for each other.

What a group waits for is its last episode, so the others may come with it: one burst costs both
ends far less than as many single messages, each of which finds the caches full of the model. Owned
by the generator's event loop. Nothing waits longer than `WAIT_S`, nothing overtakes anything, and
what waits when the generator dies is asked for again like any other unfinished work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from spade_async.transport.messages import Message

WAIT_S = 0.1
"""Longest time that a result waits for others."""

Send = Callable[[Message], Awaitable[None]]


class Outbox:
    """Hands messages to `send` in the order in which they were put here."""

    def __init__(self, send: Send, on_fault: Callable[[BaseException], None]) -> None:
        """`on_fault` hears of a fault in a sending that nobody waits for."""
        self._send = send
        self._on_fault = on_fault
        self._waiting: list[Message] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    async def put(self, message: Message) -> None:
        """Send a message within `WAIT_S`, or with the next `flush`."""
        self._waiting.append(message)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._time_is_up)

    async def flush(self) -> None:
        """Send everything now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            # Taken out first: one that cannot be sent is a fault once, not at every flush.
            await self._send(self._waiting.pop(0))

    def _time_is_up(self) -> None:
        self._timer = None
        self._sending = asyncio.get_running_loop().create_task(self.flush())
        self._sending.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._on_fault(fault)

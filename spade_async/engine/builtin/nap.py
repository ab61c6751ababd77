"""A call of the engine thread that lasts until it is ended: nothing is decoded meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Nap:
    """Made on the event loop, called once in the engine thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = self._loop.create_future()
        """Done when the thread stands still."""
        self._ended = threading.Event()

    def __call__(self) -> None:
        """Stand still."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin)
        self._ended.wait()

    def end(self) -> None:
        """Let the thread go on. From any thread, harmless when repeated."""
        self._ended.set()

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

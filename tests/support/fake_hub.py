"""A hub without sockets: scripted peers answer in the order a test's random numbers say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from spade_async.transport import messages as m
from spade_async.transport.counters import LinkCounters
from spade_async.transport.hub import PeerState, Received

Answer = Callable[[m.Message], list[m.Message]]


class FakeHub:
    """Delivers answers of scripted peers in random order, each once, until it is told to die."""

    def __init__(self, peers: dict[str, Answer], seed: int) -> None:
        self._peers = peers
        self._random = random.Random(seed)
        self._pending: list[tuple[str, m.Message]] = []
        self.counters = LinkCounters()
        self.acked: list[m.Message] = []
        self.sent: list[tuple[str, m.Message]] = []
        self.dies_after: int | None = None
        """Number of deliveries after which `receive` raises, as if the process were killed."""

    def say(self, peer: str, message: m.Message) -> None:
        self._pending.append((peer, message))

    async def send(self, peer: str, message: m.Message) -> None:
        self.sent.append((peer, message))
        for answer in self._peers[peer](message):
            self._pending.append((peer, answer))

    async def receive(self) -> Received:
        await asyncio.sleep(0)
        if not self._pending:
            # Nothing will come by itself: every answer is given when it is asked for.
            await asyncio.Event().wait()
        return self._take()

    def receive_nowait(self) -> Received | None:
        if not self._pending or self._random.random() < 0.2:
            return None
        return self._take()

    def _take(self) -> Received:
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                raise ProcessDied
        index = self._random.randrange(len(self._pending))
        peer, message = self._pending.pop(index)
        return Received(peer, message, lambda: self.acked.append(message))

    def kill(self, peer: str, answer: Answer) -> None:
        """A peer dies with all it had to say; `answer` is the one that comes in its place."""
        self._pending = [(name, message) for name, message in self._pending if name != peer]
        self._peers[peer] = answer

    def take_orphans(self, peer: str) -> list[m.Message]:
        return []

    def peers(self) -> dict[str, PeerState]:
        return {}

    async def close(self, timeout_s: float = 0.0) -> None:
        return None


class ProcessDied(BaseException):
    """Stands for kill -9: no handler of ours may catch it."""

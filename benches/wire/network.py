"""A network that drops, delays, doubles, reorders and cuts, between a `Peer` and a `Hub`.

Two layers, both in this process. `BadRouter` passes whole messages on, or twice, later, out of
order or not at all: what an application may see when connections come and go. `CutWire` passes
bytes on and cuts connections at any byte, loses what was under way, stalls, and trickles.

    peers --tcp--> CutWire --tcp--> BadRouter --tcp--> hub
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import random
import threading
import time

import zmq


class BadRouter(threading.Thread):
    """Passes messages between peers and the hub badly; a thread with sockets of its own."""

    def __init__(self, hub_endpoint: str, seed: int, *, bad_share: float = 0.25) -> None:
        super().__init__(daemon=True, name="bad-router")
        self._hub_endpoint = hub_endpoint
        self._random = random.Random(seed)
        self.bad_share = bad_share
        """Share of messages that something happens to; 0 heals the network."""
        self.dropped = self.doubled = self.delayed = self.passed = 0
        self._stopped = threading.Event()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.setsockopt(zmq.LINGER, 0)
        self._front.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.port = self._front.bind_to_random_port("tcp://127.0.0.1")
        self._backs: dict[bytes, zmq.Socket[bytes]] = {}
        self._later: list[tuple[float, int, bytes, list[bytes], bool]] = []
        self._order = itertools.count()

    def run(self) -> None:
        """Until `stop`."""
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        while not self._stopped.is_set():
            ready = dict(poller.poll(5))
            if self._front in ready:
                for _ in range(200):
                    try:
                        routing_id, *parts = self._front.recv_multipart(zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    if routing_id not in self._backs:
                        self._connect(routing_id, poller)
                    self._pass(routing_id, parts, up=True)
            for routing_id, back in self._backs.items():
                for _ in range(200 if back in ready else 0):
                    try:
                        parts = back.recv_multipart(zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    self._pass(routing_id, parts, up=False)
            now_s = time.monotonic()
            while self._later and self._later[0][0] <= now_s:
                _, _, routing_id, parts, up = heapq.heappop(self._later)
                self._send(routing_id, parts, up=up)
        for back in self._backs.values():
            back.close(linger=0)
        self._front.close(linger=0)
        self._context.term()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self.join(10)

    def _connect(self, routing_id: bytes, poller: zmq.Poller) -> None:
        back = self._context.socket(zmq.DEALER)
        back.setsockopt(zmq.ROUTING_ID, routing_id)
        back.connect(self._hub_endpoint)
        self._backs[routing_id] = back
        poller.register(back, zmq.POLLIN)

    def _pass(self, routing_id: bytes, parts: list[bytes], *, up: bool) -> None:
        draw = self._random.random() / self.bad_share if self.bad_share else 1.0
        if draw < 0.35:
            self.dropped += 1
            return
        copies = 1
        if draw < 0.6:
            self.doubled += 1
            copies = self._random.choice((2, 2, 3))
        for copy in range(copies):
            if draw < 1.0 and (copy or draw > 0.5):
                # What comes meanwhile overtakes it.
                self.delayed += 1
                due_s = time.monotonic() + self._random.choice((0.002, 0.02, 0.2))
                heapq.heappush(self._later, (due_s, next(self._order), routing_id, parts, up))
            else:
                self._send(routing_id, parts, up=up)

    def _send(self, routing_id: bytes, parts: list[bytes], *, up: bool) -> None:
        self.passed += 1
        with contextlib.suppress(zmq.Again):
            if up:
                self._backs[routing_id].send_multipart(parts, zmq.NOBLOCK)
            else:
                self._front.send_multipart([routing_id, *parts], zmq.NOBLOCK)


class CutWire:
    """A TCP relay in the caller's event loop that cuts at any byte, stalls and trickles."""

    def __init__(self, target_port: int, seed: int, target: str = "127.0.0.1") -> None:
        self._target = target, target_port
        self._random = random.Random(seed)
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_bad = True
        self.cuts = 0

    async def start(self) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Cut every connection now; what is on its way is gone."""
        self.cuts += len(self._writers) // 2
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        """Cut everything and stop listening."""
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = [writer, far_writer]
        self._writers += pair
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._relay(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(self._random.choice((64, 4096, 65536))):
                draw = self._random.random()
                if self.is_bad and draw < 0.0005:
                    # Half of it arrives.
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    self.cuts += 1
                    writer.transport.abort()
                    return
                if self.is_bad and draw < 0.01:
                    await asyncio.sleep(self._random.choice((0.005, 0.05)))
                writer.write(data)
                await writer.drain()
        writer.close()

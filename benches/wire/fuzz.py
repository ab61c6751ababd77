"""Hostile frames at both ends of the link: nothing hangs, nothing grows, everything is counted.

The hostile side is a bare ZeroMQ socket in a thread. It has said Hello (or Welcome) as it should,
so that its frames reach every check behind the door; then it sends mutations, and good messages
doubled and out of order, which must each be delivered once.
"""

from __future__ import annotations

import asyncio
import copy
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from benches.wire.messages import samples, welcomed
from benches.wire.mutations import Mutator, Parts
from spade_async.config.schema import LinkConfig
from spade_async.transport.codec import Envelope, FrameError, decode, encode
from spade_async.transport.counters import LinkCounters
from spade_async.transport.endpoint import make_endpoint, remove_endpoint
from spade_async.transport.link import Hub, Peer
from spade_async.transport.messages import Hello, Message, WeightsPublished, Welcome

CAP = 1 << 16
CONFIG = LinkConfig(max_message_bytes=CAP, resend_s=3600.0)
HOSTILE = "f0f0"
_GOOD_SHARE = 0.05


@dataclass
class Result:
    """What became of the frames at one end."""

    end: str
    frames: int
    seconds: float
    grown_bytes: int
    """Resident memory at the end over that after the first tenth."""
    slowest_s: float = 0.0
    """Longest single frame (decoding alone only)."""
    delivered: int = 0
    duplicates: int = 0
    control: int = 0
    connections_ended: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """What should not have happened; empty when all is well."""


def decoding(count: int, seed: int) -> Result:
    """Frames straight into the decoder, in both directions' messages."""
    refused: Counter[str] = Counter()
    delivered = before = 0
    slowest_s = 0.0
    faults: list[str] = []
    frames = iter(Mutator(HOSTILE, samples(), CAP, seed))
    begun_s = time.perf_counter()
    for number in range(count):
        if number == count // 10:
            before = resident_bytes()
        parts = next(frames)
        start_s = time.thread_time()
        try:
            decode(parts, CAP)
            delivered += 1
        except FrameError as error:
            refused[error.code] += 1
        except Exception as fault:  # any other exception is what we look for
            faults.append(f"frame {number} of seed {seed}: {type(fault).__name__}: {fault}")
        slowest_s = max(slowest_s, time.thread_time() - start_s)
    seconds = time.perf_counter() - begun_s
    grown = resident_bytes() - before
    return Result(
        "decoder", count, seconds, grown, slowest_s, delivered, refused=dict(refused), faults=faults
    )


async def at_coordinator(count: int, seed: int) -> Result:
    """A `Hub` against a hostile generator, beside one that behaves."""
    folder, endpoint = make_endpoint()
    hub = Hub(endpoint, CONFIG)
    await hub.start()
    hello = Hello(name="gen-0", incarnation=HOSTILE, pid=1)
    messages = [message for message in samples() if message.to_coordinator]
    plan = _Plan(messages, count, seed)

    def attack() -> None:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.ROUTING_ID, f"gen-0-{HOSTILE}".encode())
        socket.connect(endpoint)
        socket.send_multipart(encode(Envelope(HOSTILE, hello), CAP))
        for parts in plan:
            socket.send_multipart(parts)
            while socket.poll(0):
                socket.recv_multipart()
        plan.close(socket, context)

    thread = threading.Thread(target=attack, daemon=True)
    good = Peer.connect(endpoint, Hello(name="gen-1", incarnation="good", pid=2), CONFIG)
    good_peer, _ = await asyncio.gather(good, welcomed(hub))
    # All of it at one moment, and with the hostile side's greeting: who behaves may greet twice.
    start = copy.deepcopy(hub.counters)
    start.frames_in += 1
    start.received += 1
    thread.start()
    await welcomed(hub)
    result = await _watch("coordinator", hub, hub.counters, plan, thread, "gen-0", start)
    # The hub still serves who behaves.
    before = hub.counters.received
    await good_peer.send(WeightsPublished(version=1, location="", digest=""))
    while hub.counters.received == before:
        _drain(hub, plan, "gen-0")
        await asyncio.sleep(0.001)
    _drain(hub, plan, "gen-0")
    if not await good_peer.flush(20):
        result.faults.append("a peer that behaves was not served any more")
    await good_peer.close()
    await hub.close()
    remove_endpoint(folder)
    return result


async def at_part(name: str, count: int, seed: int) -> Result:
    """A `Peer` (generator or learner) against a hostile coordinator."""
    folder, endpoint = make_endpoint()
    messages = [message for message in samples() if message.from_coordinator]
    plan = _Plan(messages, count, seed)

    def attack() -> None:
        context = zmq.Context()
        socket = context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.bind(endpoint)
        routing_id = socket.recv_multipart()[0]
        socket.send_multipart([routing_id, *encode(Envelope(HOSTILE, Welcome()), CAP)])
        for parts in plan:
            socket.send_multipart([routing_id, *parts])
            while socket.poll(0):
                socket.recv_multipart()
        plan.close(socket, context)

    thread = threading.Thread(target=attack, daemon=True)
    thread.start()
    hello = Hello(name=name, incarnation="good", pid=2)
    peer = await Peer.connect(endpoint, hello, CONFIG)
    start = LinkCounters(frames_in=1, control=1)
    result = await _watch(name, peer, peer.counters, plan, thread, "coordinator", start)
    await peer.close()
    remove_endpoint(folder)
    return result


class _Plan:
    """What the hostile side sends: mutations, and good messages doubled and out of order."""

    def __init__(self, messages: list[Message], count: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._mutations = iter(Mutator(HOSTILE, messages, CAP, seed))
        self._count = count
        self._finished = threading.Event()
        self.received = threading.Event()
        """Set when the other side has taken everything: only then may the socket close."""
        self.num_good = 0
        self.taken: Counter[int] = Counter()
        """Good messages by their number, as they were delivered."""

    def __iter__(self) -> Iterator[Parts]:
        waiting: list[Parts] = []
        sent = 0
        while sent < self._count:
            if self._random.random() < _GOOD_SHARE:
                # Number 1 is that of every mutation.
                self.num_good += 1
                message = WeightsPublished(version=self.num_good, location="good", digest="")
                frames = encode(Envelope(HOSTILE, message, self.num_good + 1), CAP)
                waiting += [list(frames)] * self._random.choice((1, 2, 3))
            elif len(waiting) > 200:
                self._random.shuffle(waiting)
                yield from waiting
                sent += len(waiting)
                waiting = []
            else:
                yield next(self._mutations)
                sent += 1
        yield from waiting
        self._count = sent + len(waiting)
        self._finished.set()

    def close(self, socket: zmq.Socket[bytes], context: zmq.Context[zmq.Socket[bytes]]) -> None:
        """End the hostile side once everything has arrived."""
        self.received.wait(120)
        socket.close(linger=0)
        context.term()

    @property
    def total(self) -> int | None:
        """Frames sent, once it is known."""
        return self._count if self._finished.is_set() else None


async def _watch(
    end: str, link: Hub | Peer, counters: LinkCounters, plan: _Plan, thread: threading.Thread,
    sender: str, start: LinkCounters,
) -> Result:  # fmt: skip
    """Take everything in until the hostile side has said all; what became of it since `start`."""
    begun_s, before = time.perf_counter(), 0
    quiet_s = begun_s
    greeted = seen = start.frames_in
    faults: list[str] = []
    while (
        plan.total is None
        or counters.frames_in - greeted < plan.total
        or len(plan.taken) < plan.num_good
    ):
        _drain(link, plan, sender)
        if not before and counters.frames_in - greeted > plan._count // 10:
            before = resident_bytes()
        if counters.frames_in != seen:
            seen, quiet_s = counters.frames_in, time.perf_counter()
        elif time.perf_counter() - quiet_s > 60:
            faults.append(f"nothing came for 60 s at {seen - greeted} frames")
            break
        await asyncio.sleep(0.001)
    _drain(link, plan, sender)
    seconds, grown = time.perf_counter() - begun_s, resident_bytes() - before
    plan.received.set()
    thread.join(60)
    refused = dict(counters.refused)
    total = counters.frames_in
    told = counters.received + counters.duplicates + counters.control + sum(refused.values())
    if told != total:
        faults.append(f"{total} frames came, {told} are counted with a reason")
    if set(plan.taken) != set(range(1, plan.num_good + 1)):
        faults.append(f"{plan.num_good - len(plan.taken)} good messages were lost")
    if doubled := [number for number, times in plan.taken.items() if times > 1]:
        faults.append(f"{len(doubled)} good messages were delivered twice")
    return Result(
        end, total - greeted, seconds, grown, 0.0, counters.received - start.received,
        counters.duplicates - start.duplicates, counters.control - start.control,
        counters.connections_ended, refused, faults,
    )  # fmt: skip


def _drain(link: Hub | Peer, plan: _Plan, sender: str) -> None:
    while (received := link.receive_nowait()) is not None:
        received.ack()
        message = received.message
        if isinstance(message, WeightsPublished) and message.location == "good":
            assert received.peer == sender
            plan.taken[message.version] += 1


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


ENDS: dict[str, Callable[[int, int], Result]] = {
    "decoder": decoding,
    "coordinator": lambda count, seed: asyncio.run(at_coordinator(count, seed)),
    "generator": lambda count, seed: asyncio.run(at_part("gen-0", count, seed)),
    "learner": lambda count, seed: asyncio.run(at_part("learner", count, seed)),
}

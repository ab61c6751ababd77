"""What ZeroMQ taught others, tried on the link: late, slow, of another version, without credit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import msgpack
import pytest
import zmq

from benches.wire.messages import episode, welcomed
from benches.wire.mutations import sealed
from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport import sockets
from spade_async.transport.codec import Envelope, decode, encode
from spade_async.transport.endpoint import make_endpoint, remove_endpoint
from spade_async.transport.link import Hub, Peer
from spade_async.transport.messages import SCHEMA, Hello, WeightsPublished, Welcome

CONFIG = LinkConfig(resend_s=0.3)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 90))


def hello(name: str = "gen-0", incarnation: str = "aaaa") -> Hello:
    return Hello(name=name, incarnation=incarnation, pid=1)


def note(number: int) -> WeightsPublished:
    return WeightsPublished(version=number, location="", digest="")


def test_who_comes_a_second_late_misses_nothing():
    """With PUB/SUB the first messages would be gone and both sides wait for ever."""

    async def body() -> None:
        folder, endpoint = make_endpoint()
        # The part is there first: what it says waits for the coordinator.
        connecting = asyncio.create_task(Peer.connect(endpoint, hello(), CONFIG))
        await asyncio.sleep(1.0)
        hub = Hub(endpoint, CONFIG)
        await hub.start()
        await welcomed(hub)
        for number in range(20):
            await hub.send("gen-0", note(number))
        peer = await connecting
        await asyncio.sleep(1.0)
        got = []
        for _ in range(20):
            received = await peer.receive()
            got.append(received.message.version)
            received.ack()
        assert got == list(range(20))
        await peer.close()
        await hub.close()
        remove_endpoint(folder)

    run(body())


def test_a_slow_peer_behind_a_short_pipe_gets_all_of_200(monkeypatch):
    """A ROUTER by default delivers 20 of 200 such messages and says nothing."""
    monkeypatch.setattr(sockets, "HIGH_WATER", 10)

    async def body() -> None:
        folder, endpoint = make_endpoint()
        hub = Hub(endpoint, CONFIG)
        await hub.start()
        peer, _ = await asyncio.gather(Peer.connect(endpoint, hello(), CONFIG), welcomed(hub))
        for number in range(200):
            # A megabyte of text in each: more than the kernel keeps for a reader that sleeps.
            text = str(number).rjust(1 << 20)
            await hub.send("gen-0", WeightsPublished(version=number, location=text, digest=""))
        got = []
        while len(got) < 200:
            # The reader is away for a moment, its event loop as well.
            time.sleep(0.002)  # noqa: ASYNC251
            received = await peer.receive()
            got.append(int(received.message.location))
            received.ack()
        assert sorted(got) == list(range(200))
        assert hub.counters.unreachable > 0, "the pipe was full and the hub saw it"
        while hub.peers()["gen-0"].unacknowledged:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert hub.counters.lost == 0
        await peer.close()
        await hub.close()
        remove_endpoint(folder)

    run(body())


def test_the_queue_of_a_peer_that_reads_nothing_holds_unreliable_messages_at_a_bound(monkeypatch):
    monkeypatch.setattr(sockets, "HIGH_WATER", 1)

    async def body() -> None:
        folder, endpoint = make_endpoint()
        context = zmq.Context()
        deaf = context.socket(zmq.DEALER)
        deaf.setsockopt(zmq.RCVHWM, 1)
        deaf.setsockopt(zmq.ROUTING_ID, b"gen-0-aaaa")
        hub = Hub(endpoint, CONFIG)
        await hub.start()
        deaf.connect(endpoint)
        deaf.send_multipart(encode(Envelope("aaaa", hello()), 1 << 20))
        await hub.receive()
        for _ in range(3_000):
            await hub.send("gen-0", Welcome(error="x" * 60_000))
        channel = hub._entries["gen-0"].channel
        assert len(channel.outgoing) <= 256
        assert hub.counters.dropped_unreliable > 1_000
        deaf.close(linger=0)
        context.term()
        await hub.close()
        remove_endpoint(folder)

    run(body())


def other_schema(frames: Any) -> list[bytes]:
    fields = msgpack.unpackb(frames[0][4:])
    fields[1] = SCHEMA + 7
    return sealed(msgpack.packb(fields), bytes(frames[1]))


def test_a_peer_of_another_schema_is_told_in_one_line():
    async def body() -> None:
        folder, endpoint = make_endpoint()
        hub = Hub(endpoint, CONFIG)
        await hub.start()
        context = zmq.Context()
        stranger = context.socket(zmq.DEALER)
        stranger.setsockopt(zmq.ROUTING_ID, b"gen-0-aaaa")
        stranger.connect(endpoint)
        stranger.send_multipart(other_schema(encode(Envelope("aaaa", hello()), 1 << 20)))
        while not stranger.poll(0):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        answer = decode(stranger.recv_multipart(), 1 << 20).message
        assert isinstance(answer, Welcome)
        assert answer.error == (
            f"the other side speaks schema {SCHEMA + 7}, this one {SCHEMA}: "
            "run the same version of the program everywhere"
        )
        assert hub.counters.refused == {"schema": 1}
        assert hub.peers() == {}
        stranger.close(linger=0)
        context.term()
        await hub.close()
        remove_endpoint(folder)

    run(body())


def test_a_coordinator_of_another_schema_ends_the_part_within_seconds_in_one_line():
    folder, endpoint = make_endpoint()

    def other_coordinator() -> None:
        context = zmq.Context()
        router = context.socket(zmq.ROUTER)
        router.bind(endpoint)
        routing_id = router.recv_multipart()[0]
        answer = other_schema(encode(Envelope("hub", Welcome()), 1 << 20))
        router.send_multipart([routing_id, *answer])
        router.close(linger=2000)
        context.term()

    async def body() -> None:
        begun_s = time.monotonic()
        with pytest.raises(TransportError) as caught:
            await Peer.connect(endpoint, hello(), CONFIG, timeout_s=60)
        assert time.monotonic() - begun_s < 20
        assert f"speaks schema {SCHEMA + 7}, this one {SCHEMA}" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1

    thread = threading.Thread(target=other_coordinator)
    thread.start()
    run(body())
    thread.join(20)
    remove_endpoint(folder)


def test_a_message_against_its_way_is_refused_at_both_ends():
    async def body() -> None:
        folder, endpoint = make_endpoint()
        hub = Hub(endpoint, CONFIG)
        await hub.start()
        peer, _ = await asyncio.gather(Peer.connect(endpoint, hello(), CONFIG), welcomed(hub))
        await peer.send(Welcome())
        await hub.send("gen-0", episode(100, laid_out=False))
        while not (hub.counters.refused and peer.counters.refused):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert set(hub.counters.refused) == set(peer.counters.refused) == {"direction"}
        assert hub.receive_nowait() is None
        assert peer.receive_nowait() is None
        await peer.close()
        await hub.close()
        remove_endpoint(folder)

    run(body())

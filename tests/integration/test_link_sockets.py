"""The link over real sockets: reconnection, silence, hostile frames, many messages both ways."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import zmq

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport.endpoint import make_endpoint, remove_endpoint
from spade_async.transport.link import Hub, Peer, Received
from spade_async.transport.messages import (
    Credit,
    EpisodeResult,
    Heartbeat,
    Hello,
    Message,
    WeightsPublished,
    Welcome,
)

FAST = LinkConfig(resend_s=0.3)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 60))


def hello(name: str = "gen-0", incarnation: str = "aaaa") -> Hello:
    return Hello(name=name, incarnation=incarnation, pid=1)


def note(number: int) -> Message:
    """A reliable message that may travel both ways."""
    return WeightsPublished(version=number, location="", digest="")


@asynccontextmanager
async def hub_at(config: LinkConfig = FAST, endpoint: str | None = None) -> AsyncIterator[Hub]:
    folder, private = make_endpoint()
    hub = Hub(endpoint or private, config)
    await hub.start()
    try:
        yield hub
    finally:
        await hub.close()
        remove_endpoint(folder)


async def join(hub: Hub, a_hello: Hello, endpoint: str | None = None) -> Peer:
    async def welcome() -> None:
        received = await hub.receive()
        assert received.message == a_hello
        await hub.send(a_hello.name, Welcome(resume={"step": 3}))

    welcoming = asyncio.create_task(welcome())
    peer = await Peer.connect(endpoint or hub.endpoint, a_hello, FAST)
    await welcoming
    assert peer.welcome.resume == {"step": 3}
    return peer


async def until(condition: Any) -> None:
    # Counters have no event to wait for.
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_a_thousand_messages_both_ways_with_late_acknowledgements_in_any_order():
    async def take(end: Hub | Peer, seed: int) -> list[int]:
        rng, numbers, waiting = random.Random(seed), [], []
        while len(numbers) < 1000 or waiting:
            received = end.receive_nowait()
            if received is not None:
                numbers.append(received.message.version)
                waiting.append(received)
                if len(waiting) < 50 and len(numbers) < 1000:
                    continue
            elif len(numbers) < 1000:
                await asyncio.sleep(0.001)
                continue
            rng.shuffle(waiting)
            for item in waiting[len(waiting) // 3 :] if len(numbers) < 1000 else waiting:
                item.ack()
            del waiting[len(waiting) // 3 if len(numbers) < 1000 else 0 :]
        return numbers

    async def body() -> None:
        async with hub_at() as hub:
            peer = await join(hub, hello())
            for number in range(1000):
                await peer.send(note(number))
                await hub.send("gen-0", note(number))
            at_hub, at_peer = await asyncio.gather(take(hub, 1), take(peer, 2))
            assert sorted(at_hub) == sorted(at_peer) == list(range(1000))
            assert await peer.flush(10)
            await until(lambda: hub.peers()["gen-0"].unacknowledged == 0)
            assert hub.receive_nowait() is None
            assert peer.receive_nowait() is None
            assert hub.peers()["gen-0"].held == 0
            await peer.close()
            assert peer.counters.lost == hub.counters.lost == 0

    run(body())


def test_a_message_is_sent_again_until_acknowledged_and_delivered_once():
    async def body() -> None:
        async with hub_at() as hub:
            peer = await join(hub, hello())
            await peer.send(note(1))
            received = await hub.receive()
            assert not await peer.flush(0.1)
            await until(lambda: peer.counters.resent >= 2)
            await until(lambda: hub.counters.duplicates >= 2)
            assert hub.receive_nowait() is None
            received.ack()
            assert await peer.flush(5)
            assert peer.num_unacknowledged == 0
            await peer.close()

    run(body())


def test_cancelled_receives_lose_nothing():
    async def body() -> None:
        async with hub_at() as hub:
            peer = await join(hub, hello())
            rng, got = random.Random(3), []

            async def send() -> None:
                for number in range(300):
                    await peer.send(note(number))
                    await asyncio.sleep(rng.random() * 0.002)

            sending = asyncio.create_task(send())
            while len(got) < 300:
                with contextlib.suppress(TimeoutError):
                    received = await asyncio.wait_for(hub.receive(), rng.random() * 0.002)
                    got.append(received.message.version)
                    received.ack()
            await sending
            assert sorted(got) == list(range(300))
            assert await peer.flush(5)
            await peer.close()

    run(body())


class Wire:
    """A TCP relay that can be cut, so that both ends stay alive and must find each other again."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers += [writer, far_writer]
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._relay(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def test_a_cut_connection_is_made_again_and_nothing_is_lost_or_doubled():
    async def body() -> None:
        async with hub_at(endpoint="tcp://127.0.0.1:*") as hub:
            wire = Wire(int(hub.endpoint.rpartition(":")[2]))
            port = await wire.start()
            peer = await join(hub, hello(), f"tcp://127.0.0.1:{port}")
            at_hub: list[int] = []
            at_peer: list[int] = []

            async def take(end: Hub | Peer, into: list[int]) -> None:
                while True:
                    received: Received = await end.receive()
                    into.append(received.message.version)
                    received.ack()

            takers = [asyncio.create_task(take(hub, at_hub))]
            takers.append(asyncio.create_task(take(peer, at_peer)))
            for number in range(400):
                await peer.send(note(number))
                await hub.send("gen-0", note(number))
                if number % 100 == 50:
                    await asyncio.sleep(0.02)
                    wire.cut()
                await asyncio.sleep(0.001)
            await until(lambda: len(at_hub) >= 400 and len(at_peer) >= 400)
            assert await peer.flush(10)
            await until(lambda: hub.peers()["gen-0"].unacknowledged == 0)
            for taker in takers:
                taker.cancel()
            assert sorted(at_hub) == sorted(at_peer) == list(range(400))
            assert peer.counters.resent + hub.counters.resent > 0
            await peer.close()
            await wire.close()

    run(body())


def test_work_of_a_dead_incarnation_stays_readable_and_is_not_mixed_with_the_new_one():
    async def body() -> None:
        async with hub_at() as hub:
            old = await join(hub, hello())
            await hub.send("gen-0", note(1))
            (await old.receive()).ack()
            await until(lambda: hub.peers()["gen-0"].unacknowledged == 0)
            await hub.send("gen-0", note(2))
            await old.receive()
            await old.close()
            # Sending to a peer that is away is no error: it is kept.
            await hub.send("gen-0", note(3))
            await until(lambda: hub.counters.unreachable > 0)
            assert [m.version for m in hub.unacknowledged("gen-0")] == [2, 3]
            new = await join(hub, hello(incarnation="bbbb"))
            assert hub.peers()["gen-0"].incarnation == "bbbb"
            assert hub.unacknowledged("gen-0") == []
            assert [m.version for m in hub.take_orphans("gen-0")] == [2, 3]
            assert hub.take_orphans("gen-0") == []
            await hub.send("gen-0", note(4))
            assert (await new.receive()).message == note(4)
            hub.forget("gen-0")
            with pytest.raises(TransportError, match="never connected"):
                await hub.send("gen-0", note(5))
            await new.close()

    run(body())


def test_a_refused_peer_gets_the_reason():
    async def body() -> None:
        async with hub_at() as hub:

            async def refuse() -> None:
                received = await hub.receive()
                await hub.send(received.peer, Welcome(error="the run is stopping"))
                hub.forget(received.peer)

            refusing = asyncio.create_task(refuse())
            with pytest.raises(TransportError, match="refused gen-0: the run is stopping"):
                await Peer.connect(hub.endpoint, hello(), FAST)
            await refusing

    run(body())


def test_no_coordinator_is_an_error_after_the_timeout():
    async def body() -> None:
        folder, endpoint = make_endpoint()
        with pytest.raises(TransportError, match="no answer from the coordinator"):
            await Peer.connect(endpoint, hello(), FAST, timeout_s=0.2)
        remove_endpoint(folder)

    run(body())


def test_a_welcome_that_comes_late_is_enough():
    async def body() -> None:
        async with hub_at() as hub:
            connecting = asyncio.create_task(Peer.connect(hub.endpoint, hello(), FAST))
            received = await hub.receive()
            await asyncio.sleep(1.2)
            assert hub.receive_nowait() is None, "the second Hello is the same incarnation"
            await hub.send(received.peer, Welcome())
            peer = await connecting
            await peer.close()

    run(body())


def test_hostile_frames_are_counted_and_the_hub_goes_on():
    async def body() -> None:
        async with hub_at() as hub:
            context = zmq.Context()
            stranger = context.socket(zmq.DEALER)
            stranger.setsockopt(zmq.ROUTING_ID, b"gen-9-ffff")
            stranger.connect(hub.endpoint)
            for frames in ([b""], [b"x"], [b"a", b"b", b"c"], [b"\x00" * 100, b"y"]):
                stranger.send_multipart(frames)
            peer = await join(hub, hello())
            await until(lambda: sum(hub.counters.refused.values()) == 4)
            assert set(hub.counters.refused) == {"frames", "checksum"}
            await peer.send(note(1))
            assert (await hub.receive()).message == note(1)
            stranger.close(linger=0)
            context.term()
            await peer.close()

    run(body())


def test_messages_of_any_thread_arrive_and_arrays_are_kept():
    async def body() -> None:
        async with hub_at() as hub:
            peer = await join(hub, hello())
            beat = Heartbeat(
                name="gen-0", state="idle", waits_for="", progress=1, oldest_wait_s=0.0, metrics={}
            )
            await asyncio.to_thread(peer.post, beat)
            heard = (await hub.receive()).message
            # The figures of the sending end come along.
            assert heard.metrics["link_unacknowledged"] == heard.metrics["link_resent"] == 0.0
            assert dataclasses.replace(heard, metrics={}) == beat
            result = EpisodeResult(
                task_id="t", group_id="g", environment_id="e", arm="no_hint", index=0, seed=1,
                purpose="train", outcome="finished", detail="", episode_return=1.0,
                missing_reason=None, num_turns=1, transcript=[], observation="", hint_text=None,
                jail={}, token_ids=np.arange(100_000, dtype=np.int32),
                loss_mask=np.ones(100_000, np.uint8),
                generator_logprobs=np.zeros(100_000, np.float32),
                versions=np.zeros(100_000, np.int64),
            )  # fmt: skip
            await peer.send(result)
            received = await hub.receive()
            assert received.message.token_ids.tobytes() == result.token_ids.tobytes()
            received.ack()
            assert await peer.flush(5)
            await peer.close()
            peer.post(beat)
            with pytest.raises(TransportError, match="closed"):
                await peer.send(beat)
            with pytest.raises(TransportError, match="closed"):
                await peer.receive()

    run(body())


def test_close_waits_for_the_last_acknowledgement():
    async def body() -> None:
        folder, endpoint = make_endpoint()
        hub = Hub(endpoint, FAST)
        await hub.start()
        peer = await join(hub, hello())

        async def leave() -> None:
            (await peer.receive()).ack()
            await peer.close()

        leaving = asyncio.create_task(leave())
        await hub.send("gen-0", note(1))
        await hub.close(timeout_s=10)
        assert hub.peers()["gen-0"].unacknowledged == 0
        await leaving
        remove_endpoint(folder)

    run(body())


def test_an_address_in_use_is_one_clear_error():
    async def body() -> None:
        async with hub_at(endpoint="tcp://127.0.0.1:*") as hub:
            with pytest.raises(TransportError, match="cannot listen on"):
                await Hub(hub.endpoint, FAST).start()
            with pytest.raises(TransportError, match="CURVE"):
                await Hub("tcp://0.0.0.0:*", FAST).start()
            with pytest.raises(TransportError, match="never connected"):
                await hub.send("gen-7", Credit(tasks=1))

    run(body())

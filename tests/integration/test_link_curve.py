"""CURVE over real sockets: who is let in, what others hear within seconds, what a wire shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import zmq

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport.client_keys import add_clients
from spade_async.transport.keys import write_keys
from spade_async.transport.link import Hub, Peer
from spade_async.transport.messages import Hello, WeightsPublished, Welcome

ANY = "tcp://127.0.0.1:*"
PLAIN = LinkConfig(resend_s=0.3)
HELLO = Hello(name="gen-0", incarnation="aaaa", pid=1)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 60))


def keyed(folder: Path) -> LinkConfig:
    """A configuration with keys; made there when they are not."""
    if not (folder / "client.key").exists():
        write_keys(folder)
    # The rule about addresses is that of whole configurations; the hub gets its own.
    return LinkConfig(endpoint="tcp://127.0.0.1:1", keys=str(folder), resend_s=0.3)


async def welcome_all(hub: Hub) -> None:
    while True:
        received = await hub.receive()
        if isinstance(received.message, Hello):
            await hub.send(received.peer, Welcome())
        received.ack()


async def refused(server: LinkConfig, client: LinkConfig) -> tuple[str, Hub]:
    """What a client is told, which must come in seconds; the hub, closed."""
    hub = Hub(ANY, server)
    await hub.start()
    welcoming = asyncio.create_task(welcome_all(hub))
    begun_s = time.monotonic()
    with pytest.raises(TransportError) as caught:
        await Peer.connect(hub.endpoint, HELLO, client, timeout_s=50)
    assert time.monotonic() - begun_s < 20
    # The client may hear of it before the hub has looked at its monitor.
    until_s = time.monotonic() + (20 if server.keys else 0)
    while not hub.counters.failed_handshakes and time.monotonic() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert hub.peers() == {}
    assert hub.counters.received == 0
    welcoming.cancel()
    await hub.close()
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value), hub


def test_a_known_client_is_let_in_and_talks_both_ways(tmp_path):
    async def body() -> None:
        config = keyed(tmp_path)
        hub = Hub(ANY, config)
        await hub.start()
        welcoming = asyncio.create_task(welcome_all(hub))
        peer = await Peer.connect(hub.endpoint, HELLO, config)
        for number in range(50):
            await peer.send(WeightsPublished(version=number, location="", digest=""))
            await hub.send("gen-0", WeightsPublished(version=number, location="", digest=""))
        assert await peer.flush(10)
        assert [(await peer.receive()).message.version for _ in range(50)] == list(range(50))
        welcoming.cancel()
        await peer.close()
        await hub.close()
        assert hub.counters.failed_handshakes == peer.counters.failed_handshakes == {}

    run(body())


def test_a_key_the_coordinator_does_not_know_is_refused_by_name(tmp_path):
    async def body() -> None:
        server, client = keyed(tmp_path / "server"), keyed(tmp_path / "client")
        own = (tmp_path / "client" / "client.key").read_text().splitlines()[:-1]
        right = (tmp_path / "server" / "client.key").read_text().splitlines()[-1]
        (tmp_path / "client" / "client.key").write_text("\n".join([*own, right]))
        told, hub = await refused(server, client)
        assert "it does not know our key: add the public key of client.key" in told
        assert hub.counters.failed_handshakes["key"] >= 1

    run(body())


def test_machines_have_keys_of_their_own_and_one_is_shut_out_without_the_others(tmp_path):
    async def body() -> None:
        server = keyed(tmp_path)
        for path in add_clients(tmp_path, ["a", "b"]):
            config = keyed(path.parent)
            hub = Hub(ANY, server)
            await hub.start()
            welcoming = asyncio.create_task(welcome_all(hub))
            peer = await Peer.connect(hub.endpoint, HELLO, config)
            welcoming.cancel()
            await peer.close()
            await hub.close()
        text = (tmp_path / "server.key").read_text()
        (tmp_path / "server.key").write_text(
            "".join(line for line in text.splitlines(keepends=True) if "# a" not in line)
        )
        told, hub = await refused(server, keyed(tmp_path / "a"))
        assert "it does not know our key: add the public key of client.key" in told
        assert hub.counters.failed_handshakes["key"] >= 1
        hub = Hub(ANY, server)
        await hub.start()
        welcoming = asyncio.create_task(welcome_all(hub))
        await (await Peer.connect(hub.endpoint, HELLO, keyed(tmp_path / "b"))).close()
        welcoming.cancel()
        await hub.close()

    run(body())


def test_a_wrong_server_key_is_refused_by_name(tmp_path):
    async def body() -> None:
        told, hub = await refused(keyed(tmp_path / "a"), keyed(tmp_path / "b"))
        assert "the server key in client.key is not its own" in told
        assert hub.counters.failed_handshakes["protocol"] >= 1

    run(body())


def test_a_client_without_keys_is_told_to_set_them(tmp_path):
    async def body() -> None:
        told, hub = await refused(keyed(tmp_path), PLAIN)
        assert "it asks for keys: set link.keys" in told
        # Which of the two the hub sees depends on who closes first.
        assert set(hub.counters.failed_handshakes) <= {"protocol", "gone"}
        assert sum(hub.counters.failed_handshakes.values()) >= 1

    run(body())


def test_keys_on_one_side_only_are_named(tmp_path):
    async def body() -> None:
        told, _ = await refused(PLAIN, keyed(tmp_path))
        # Which of the two it hears depends on whose greeting was first.
        assert "it has no keys" in told or "the server key in client.key is not its own" in told

    run(body())


def test_missing_keys_are_an_error_before_any_connection(tmp_path):
    async def body() -> None:
        nowhere = LinkConfig(endpoint="tcp://127.0.0.1:1", keys=str(tmp_path / "no"))
        with pytest.raises(TransportError, match=r"server\.key: No such file"):
            await Hub(ANY, nowhere).start()
        with pytest.raises(TransportError, match=r"client\.key: No such file"):
            await Peer.connect("tcp://127.0.0.1:1", HELLO, nowhere)

    run(body())


def test_off_loopback_only_with_keys(tmp_path):
    async def body() -> None:
        with pytest.raises(TransportError, match=r"without CURVE keys only.*spade-async keys"):
            await Hub("tcp://0.0.0.0:*", PLAIN).start()
        with pytest.raises(TransportError, match="without CURVE keys only"):
            await Peer.connect("tcp://10.1.2.3:5", HELLO, PLAIN)
        hub = Hub("tcp://0.0.0.0:*", keyed(tmp_path))
        await hub.start()
        await hub.close()

    run(body())


def test_the_wire_shows_nothing_of_a_message(tmp_path):
    async def body() -> None:
        config, seen = keyed(tmp_path), bytearray()
        hub = Hub(ANY, config)
        await hub.start()
        welcoming = asyncio.create_task(welcome_all(hub))
        port = int(hub.endpoint.rpartition(":")[2])

        async def relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                seen.extend(data)
                sink.write(data)
            sink.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(relay(reader, far_writer), relay(far_reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        middle = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        peer = await Peer.connect(middle, HELLO, config)
        await peer.send(WeightsPublished(version=7, location="a secret place", digest=""))
        assert await peer.flush(10)
        await peer.close()
        server.close()
        welcoming.cancel()
        await hub.close()
        await asyncio.sleep(0.2)
        assert len(seen) > 300
        assert b"secret place" not in seen
        assert b"CURVE" in seen

    run(body())


def test_a_stranger_that_speaks_no_zeromq_is_counted_and_harms_nobody(tmp_path):
    async def body() -> None:
        config = keyed(tmp_path)
        hub = Hub(ANY, config)
        await hub.start()
        welcoming = asyncio.create_task(welcome_all(hub))
        port = int(hub.endpoint.rpartition(":")[2])
        for words in (b"GET / HTTP/1.1\r\n\r\n" * 8, b"\xff" + bytes(200), b"\x00" * 300):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(words)
            await asyncio.sleep(0.1)
            writer.close()
        peer = await Peer.connect(hub.endpoint, HELLO, config)
        await asyncio.sleep(0.3)
        failed = sum(hub.counters.failed_handshakes.values())
        assert hub.counters.connections_ended + failed >= 3
        welcoming.cancel()
        await peer.close()
        await hub.close()

    run(body())


def test_the_library_has_curve():
    assert zmq.has("curve")

"""Probes of the link: what is known to go wrong with ZeroMQ. The table of docs/probes.md."""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport import sockets
from spade_async.transport.codec import Envelope, decode, encode
from spade_async.transport.endpoint import make_endpoint, remove_endpoint
from spade_async.transport.link import Hub, Peer
from spade_async.transport.messages import Hello, StepReport, TrainingBatch, Welcome
from tests.support.asynchronous import run_async

PACKAGE = Path(__file__).parents[2] / "spade_async"
CAP = 64 << 20


@pytest.fixture
def endpoint() -> Iterator[str]:
    folder, address = make_endpoint()
    yield address
    remove_endpoint(folder)


def batch(step: int, num_tokens: int) -> TrainingBatch:
    return TrainingBatch(
        branch=0,
        step=step,
        sample_ids=["s"],
        roles=["agent"],
        staleness_min=0,
        staleness_max=0,
        checkpoint=False,
        offsets=np.array([0, num_tokens], np.int64),
        advantages=np.zeros(1, np.float32),
        staleness=np.zeros(1, np.int64),
        token_ids=np.arange(num_tokens, dtype=np.int32),
        loss_mask=np.ones(num_tokens, np.uint8),
        generator_logprobs=np.zeros(num_tokens, np.float32),
        versions=np.zeros(num_tokens, np.int64),
    )


def zmq_calls() -> Iterator[tuple[Path, ast.Call]]:
    """Every call in a module that imports ZeroMQ."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert "zmq.asyncio" not in text, path
        if "import zmq" in text or "from zmq" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call):
                    yield path.relative_to(PACKAGE), node


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def test_no_receive_is_awaited_so_none_can_be_cancelled() -> None:
    """A cancelled receive lost 2 of 450 messages elsewhere: here sockets are only ever polled."""
    receiving = [
        (path, call) for path, call in zmq_calls() if name_of(call) in ("recv", "recv_multipart")
    ]
    assert receiving
    for path, call in receiving:
        assert "NOBLOCK" in ast.unparse(call), f"{path}:{call.lineno}"


def test_each_socket_has_one_owner_and_none_publishes() -> None:
    """PUB drops in silence what a slow or late reader does not take: 20 of 200 arrived."""
    found = [(path, call) for path, call in zmq_calls() if name_of(call) == "socket"]
    kinds = {ast.unparse(call.args[0]) for _, call in found}
    assert kinds == {"zmq.ROUTER", "zmq.DEALER", "zmq.REP"}
    # All else gets its socket from there, and hands it to one pump in one event loop.
    assert {path.name for path, _ in found} == {"sockets.py", "gate.py"}
    pumps = [path.name for path, call in zmq_calls() if name_of(call) == "Pump"]
    assert sorted(pumps) == ["gate.py", "hub.py", "peer.py"]


@run_async
async def test_a_peer_that_does_not_read_gets_everything_in_order_and_holds_up_nobody(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pipe holds ten messages; a ROUTER would drop the other 190 without an error."""
    monkeypatch.setattr(sockets, "HIGH_WATER", 10)
    hub = Hub(endpoint, LinkConfig(resend_s=60.0))
    await hub.start()
    context = zmq.Context()
    slow = context.socket(zmq.DEALER)
    slow.setsockopt(zmq.ROUTING_ID, b"learner-aaaa")
    slow.setsockopt(zmq.RCVHWM, 10)
    slow.setsockopt(zmq.LINGER, 0)
    slow.connect(endpoint)
    try:
        hello = Hello(name="learner", incarnation="aaaa", pid=1)
        slow.send_multipart(encode(Envelope("aaaa", hello), CAP))
        await asyncio.wait_for(hub.receive(), 10)
        await hub.send("learner", Welcome())
        began_s = time.monotonic()
        for step in range(200):
            await hub.send("learner", batch(step, 40_000))
        assert time.monotonic() - began_s < 10.0
        await asyncio.sleep(0.5)
        assert hub.counters.unreachable > 0
        assert hub.peers()["learner"].unacknowledged == 200
        steps: list[int] = []
        deadline_s = time.monotonic() + 20.0
        while len(steps) < 200 and time.monotonic() < deadline_s:
            await asyncio.sleep(0.001)
            while slow.poll(0):
                message = decode(slow.recv_multipart(), CAP).message
                if isinstance(message, TrainingBatch):
                    steps.append(message.step)
        assert steps == list(range(200))
        assert hub.counters.lost == 0
    finally:
        slow.close()
        context.term()
        await hub.close()


@run_async
async def test_what_is_sent_before_anybody_is_there_is_an_error_and_not_lost(
    endpoint: str,
) -> None:
    hub = Hub(endpoint, LinkConfig())
    await hub.start()
    try:
        with pytest.raises(TransportError, match="peer 'learner' never connected"):
            await hub.send("learner", batch(1, 4))
    finally:
        await hub.close()


@run_async
async def test_a_peer_that_starts_a_second_before_the_hub_or_after_it_joins(endpoint: str) -> None:
    async def welcome(hub: Hub, name: str) -> None:
        assert (await hub.receive()).peer == name
        await hub.send(name, Welcome())
        await hub.send(name, batch(7, 4))

    hub = Hub(endpoint, LinkConfig())
    early = asyncio.create_task(
        Peer.connect(endpoint, Hello(name="gen-0", incarnation="aaaa", pid=1), LinkConfig())
    )
    await asyncio.sleep(1.0)
    await hub.start()
    welcoming = asyncio.create_task(welcome(hub, "gen-0"))
    peers = [await early]
    await welcoming
    await asyncio.sleep(1.0)
    welcoming = asyncio.create_task(welcome(hub, "learner"))
    hello = Hello(name="learner", incarnation="bbbb", pid=1)
    peers.append(await Peer.connect(endpoint, hello, LinkConfig()))
    await welcoming
    try:
        for peer in peers:
            received = await asyncio.wait_for(peer.receive(), 10)
            assert isinstance(received.message, TrainingBatch)
            received.ack()
            await peer.send(
                StepReport(
                    branch=0,
                    step=7,
                    applied=True,
                    metrics={},
                    sample_ids=["s"],
                    checkpoint=None,
                    quarantine=None,
                    location="",
                    digest="",
                    publish_s=0.0,
                    busy_s=0.0,
                    wait_s=0.0,
                )
            )
            back = await asyncio.wait_for(hub.receive(), 10)
            back.ack()
        for peer in peers:
            assert await peer.flush(10.0)
            assert peer.counters.lost == peer.counters.duplicates == 0
    finally:
        for peer in peers:
            await peer.close()
        await hub.close()

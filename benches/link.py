"""What reliability costs: the link against raw pyzmq between two processes over ipc.

One way, generator to coordinator: DEALER -> ROUTER. The link checks, numbers, acknowledges and
keeps every message; raw pyzmq only moves the same two frames. Sizes are bytes of the packed block.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from typing import Any

import numpy as np
import zmq

from spade_async.config.schema import LinkConfig
from spade_async.transport.codec import Envelope, decode, encode
from spade_async.transport.endpoint import make_endpoint, remove_endpoint
from spade_async.transport.link import Hub, Peer
from spade_async.transport.messages import EpisodeResult, Hello, Welcome

SIZES = (1_000, 16_000, 128_000, 1_000_000)
BYTES_PER_TOKEN = 4 + 1 + 4 + 8
SAMPLE_TOKENS = 200
"""A typical nano episode: prompt, four turns, observations."""
IN_FLIGHT_BYTES = 16_000_000
CONFIG = LinkConfig(resend_s=60.0)


def run(quick: bool) -> dict[str, Any]:
    """Figures per size (median of the repeats) and for one typical sample."""
    total_bytes, most, repeats = (4_000_000, 500, 1) if quick else (64_000_000, 5_000, 3)
    sizes = []
    for size in SIZES:
        count = max(20, min(most, total_bytes // size))
        raw = [_timed(_send_raw, _receive_raw, size, count) for _ in range(repeats)]
        link = [_timed(_send_link, _receive_link, size, count) for _ in range(repeats)]
        sizes.append(
            {
                "block_bytes": size,
                "messages": count,
                "raw_messages_per_s": statistics.median(raw),
                "link_messages_per_s": statistics.median(link),
                "raw_gb_per_s": statistics.median(raw) * size / 1e9,
                "link_gb_per_s": statistics.median(link) * size / 1e9,
            }
        )
    return {"repeats": repeats, "sizes": sizes, "sample": _sample_cost(200 if quick else 2_000)}


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"{'block':>10} {'raw msg/s':>10} {'link msg/s':>11} {'raw GB/s':>9} {'link GB/s':>10}",
    ]
    lines += [
        f"{row['block_bytes']:>10,} {row['raw_messages_per_s']:>10,.0f} "
        f"{row['link_messages_per_s']:>11,.0f} {row['raw_gb_per_s']:>9.2f} "
        f"{row['link_gb_per_s']:>10.2f}"
        for row in result["sizes"]
    ]
    sample = result["sample"]
    lines.append(
        f"one EpisodeResult of {sample['tokens']} tokens ({sample['bytes']:,} bytes): "
        f"encode {sample['encode_us']:.0f} us, decode {sample['decode_us']:.0f} us"
    )
    return "\n".join(lines)


def _sample_cost(repeats: int) -> dict[str, Any]:
    message = _episode(SAMPLE_TOKENS)
    envelope = Envelope("abcd", message, 1, 0, ())
    frames = encode(envelope, CONFIG.max_message_bytes)
    costs = {}
    for name, work in (
        ("encode_us", lambda: encode(envelope, CONFIG.max_message_bytes)),
        ("decode_us", lambda: decode(frames, CONFIG.max_message_bytes)),
    ):
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        costs[name] = statistics.median(times) * 1e6
    return {"tokens": SAMPLE_TOKENS, "bytes": len(frames[0]) + len(frames[1]), **costs}


def _timed(send: Any, receive: Any, size: int, count: int) -> float:
    """Messages per second between the first and the last arrival."""
    folder, endpoint = make_endpoint()
    context = multiprocessing.get_context("spawn")
    sender = context.Process(target=send, args=(endpoint, size, count), daemon=True)
    sender.start()
    try:
        seconds = receive(endpoint, count)
        sender.join(timeout=30)
    finally:
        sender.kill()
        sender.join()
        remove_endpoint(folder)
    return (count - 1) / seconds


def _receive_raw(endpoint: str, count: int) -> float:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)
    socket.recv_multipart()
    start = time.perf_counter()
    for _ in range(count - 1):
        socket.recv_multipart()
    seconds = time.perf_counter() - start
    socket.close(linger=0)
    context.term()
    return seconds


def _send_raw(endpoint: str, size: int, count: int) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.SNDHWM, _in_flight(size))
    socket.connect(endpoint)
    header, block = bytes(300), bytes(size)
    for _ in range(count):
        socket.send_multipart([header, block], copy=False)
    socket.close(linger=30_000)
    context.term()


def _receive_link(endpoint: str, count: int) -> float:
    async def body() -> float:
        hub = Hub(endpoint, CONFIG)
        await hub.start()
        hello = await hub.receive()
        await hub.send(hello.peer, Welcome())
        (await hub.receive()).ack()
        start = time.perf_counter()
        for _ in range(count - 1):
            received = hub.receive_nowait() or await hub.receive()
            received.ack()
        seconds = time.perf_counter() - start
        await asyncio.sleep(0.1)
        await hub.close()
        return seconds

    return asyncio.run(body())


def _send_link(endpoint: str, size: int, count: int) -> None:
    async def body() -> None:
        hello = Hello(name="gen-0", incarnation="bench", pid=0)
        peer = await Peer.connect(endpoint, hello, CONFIG)
        message = _episode(size // BYTES_PER_TOKEN)
        in_flight = _in_flight(size)
        for _ in range(count):
            while peer.num_unacknowledged >= in_flight:  # noqa: ASYNC110
                await asyncio.sleep(0.0005)
            await peer.send(message)
        await peer.flush(30)
        await peer.close()

    asyncio.run(body())


def _in_flight(size: int) -> int:
    """Messages under way: many small ones, few large ones."""
    return max(4, min(1_000, IN_FLIGHT_BYTES // size))


def _episode(tokens: int) -> EpisodeResult:
    turn = {"action": "sort ascending", "observation": "wrong: try again", "reward": 0.0}
    return EpisodeResult(
        task_id="play-000123-4",
        group_id="group-000123",
        environment_id="0123456789abcdef",
        arm="no_hint",
        index=3,
        seed=2**61,
        purpose="train",
        outcome="finished",
        detail="",
        episode_return=1.0,
        missing_reason=None,
        num_turns=4,
        transcript=[turn] * 4,
        observation="numbers: 4 8 15 16 23 42",
        hint_text=None,
        jail={"calls": 5, "wall_s": 0.004, "outcomes": {"finished": 5}},
        token_ids=np.arange(tokens, dtype=np.int32),
        loss_mask=np.ones(tokens, np.uint8),
        generator_logprobs=np.zeros(tokens, np.float32),
        versions=np.zeros(tokens, np.int64),
    )

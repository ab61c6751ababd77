"""What reliability costs: the link against raw pyzmq between two processes over ipc.

One way, generator to coordinator: DEALER -> ROUTER, two frames per message in all five columns.
"raw copy" is pyzmq's default; "raw no-copy" sends and receives with ``copy=False``, the fastest
that pyzmq has, from a thread that does nothing else; "raw asyncio" is the same through
`zmq.asyncio`, as a program with an event loop would use it (the parts of a run have one: the link
does). The link checks, numbers, acknowledges and keeps every message: "link" sends arrays
that nobody can write to any more and that lie in one block (`transport.block.lay_out`), as the
learner's batches do; "link gathers" sends four separate, writable arrays, which are copied once
into a block. Sizes are bytes of the block. Repeats of the columns are interleaved in the same two
processes, whose allocator keeps freed blocks for all four as it does for the link
(`transport.memory`): without that raw copies are a third slower at a megabyte. The window of the
link is the high water mark of raw pyzmq. Raw pyzmq does not look at what came; the link reads all
of it but the elements of the arrays. In all columns what came is held until the next one is here,
as whoever uses it does: freed before, its memory would be the next one's, still in the cache. Raw
pyzmq uses ``send_multipart`` and ``recv_multipart``, as its users do; they take 3 us more than the
calls that the link makes. CPU time has everything in it, connecting too.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import zmq
import zmq.asyncio

from benches.wire.messages import episode, welcomed
from benches.wire.run_share import run_share
from spade_async.config.schema import LinkConfig
from spade_async.transport.codec import Envelope, decode, encode
from spade_async.transport.endpoint import make_endpoint, remove_endpoint
from spade_async.transport.link import Hub, Peer
from spade_async.transport.memory import keep_freed_blocks
from spade_async.transport.messages import Hello

SIZES = (1_000, 4_000, 16_000, 65_536, 131_072, 262_144, 1_048_576, 4_194_304, 16_777_216)
QUICK_SIZES = (1_000, 131_072, 1_048_576)
MODES = ("raw_copy", "raw_no_copy", "raw_asyncio", "link", "link_gathers")
RAW = MODES[:3]
GOAL_BYTES = 65_536
"""Above this the link may cost 15 % over raw pyzmq."""
GOAL = 0.15
SAMPLE_TOKENS = 200
"""A typical nano episode: prompt, four turns, observations."""
IN_FLIGHT_BYTES = 16_000_000
CONFIG = LinkConfig(resend_s=60.0)


def run(quick: bool) -> dict[str, Any]:
    """Figures per size (medians of the repeats) and for one typical sample."""
    total_bytes, most, repeats = (16_000_000, 500, 1) if quick else (400_000_000, 5_000, 7)
    keep_freed_blocks()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    sender = context.Process(target=_sender, args=(theirs,), daemon=True)
    sender.start()
    try:
        rows = [
            _row(ours, size, max(24, min(most, total_bytes // size)), repeats)
            for size in (QUICK_SIZES if quick else SIZES)
        ]
        ours.send(None)
        sender.join(timeout=30)
    finally:
        sender.kill()
        sender.join()
    return {
        "repeats": repeats,
        "sizes": rows,
        "sample": _sample_cost(200 if quick else 5_000),
        # A run needs its model, which takes minutes to make where it is not cached.
        "run": None if quick else run_share(12),
    }


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"{'block':>11} | {'messages/s':^54} | {'GB/s':^39} | "
        f"{'CPU us per message':^31} | overhead over raw",
        f"{'':>11} | "
        f"{'raw copy':>10} {'no-copy':>10} {'asyncio':>10} {'link':>10} {'gathers':>10} | "
        f"{'copy':>7} {'no-copy':>7} {'asyncio':>7} {'link':>7} {'gathers':>7} | "
        f"{'copy':>7} {'no-copy':>7} {'asyncio':>7} {'link':>7} | copy, no-copy, asyncio",
    ]
    for row in result["sizes"]:
        rates = [row[f"{mode}_per_s"] for mode in MODES]
        size = row["block_bytes"]
        lines.append(
            f"{size:>11,} | "
            + " ".join(f"{rate:>10,.0f}" for rate in rates)
            + " | "
            + " ".join(f"{rate * size / 1e9:>7.2f}" for rate in rates)
            + " | "
            + " ".join(f"{row[f'{mode}_cpu_us']:>7,.0f}" for mode in MODES[:4])
            + " | "
            + ", ".join(f"{row['overhead_over_' + mode.removeprefix('raw_')]:+.0%}" for mode in RAW)
        )
    sample = result["sample"]
    lines.append(
        f"one EpisodeResult of {sample['tokens']} tokens ({sample['bytes']:,} bytes): "
        f"encode {sample['encode_us']:.0f} us, decode {sample['decode_us']:.0f} us"
    )
    if (run := result["run"]) is not None:
        lines.append(
            f"a nano run of {run['steps']} steps, {run['wall_s']:.1f} s: all parts together spent "
            f"{run['link_s_of_all_parts']:.2f} s in the link, {run['share_of_wall_time']:.2%}"
        )
    return "\n".join(lines)


def _row(sender: Connection, size: int, count: int, repeats: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    cpu_us: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(repeats):
        for mode in MODES:
            rate, cpu_s = _timed(sender, mode, size, count)
            rates[mode].append(rate)
            cpu_us[mode].append(cpu_s / count * 1e6)
    medians = {mode: statistics.median(found) for mode, found in rates.items()}
    # Of each repeat: what happened on the machine meanwhile hit both sides.
    overheads = {
        raw: statistics.median(
            theirs / ours - 1.0 for theirs, ours in zip(rates[raw], rates["link"], strict=True)
        )
        for raw in RAW
    }
    return {
        "block_bytes": size,
        "messages": count,
        **{f"{mode}_per_s": rate for mode, rate in medians.items()},
        **{f"{mode}_gb_per_s": rate * size / 1e9 for mode, rate in medians.items()},
        **{f"{mode}_cpu_us": statistics.median(found) for mode, found in cpu_us.items()},
        **{f"{mode}_spread": max(f) / min(f) - 1.0 for mode, f in rates.items()},
        **{f"overhead_over_{raw.removeprefix('raw_')}": overheads[raw] for raw in RAW},
    }


def _timed(sender: Connection, mode: str, size: int, count: int) -> tuple[float, float]:
    """Messages per second between the first and the last arrival; CPU seconds of both processes."""
    before_s = time.process_time()
    folder, endpoint = make_endpoint()
    sender.send((mode, endpoint, size, count))
    try:
        if mode == "raw_asyncio":
            seconds = asyncio.run(_receive_asyncio(endpoint, size, count))
        elif mode.startswith("raw"):
            seconds = _receive_raw(endpoint, size, count, copy=mode == "raw_copy")
        else:
            seconds = asyncio.run(_receive_link(endpoint, count))
    finally:
        theirs_s = sender.recv()
        remove_endpoint(folder)
    return (count - 1) / seconds, theirs_s + time.process_time() - before_s


def _sender(orders: Connection) -> None:
    keep_freed_blocks()
    while (order := orders.recv()) is not None:
        mode, endpoint, size, count = order
        before_s = time.process_time()
        if mode == "raw_asyncio":
            asyncio.run(_send_asyncio(endpoint, size, count))
        elif mode.startswith("raw"):
            _send_raw(endpoint, size, count, copy=mode == "raw_copy")
        else:
            asyncio.run(_send_link(endpoint, size, count, gathers=mode == "link_gathers"))
        orders.send(time.process_time() - before_s)


def _receive_raw(endpoint: str, size: int, count: int, *, copy: bool) -> float:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.RCVHWM, _in_flight(size))
    socket.bind(endpoint)
    socket.recv_multipart()
    start = time.perf_counter()
    for _ in range(count - 1):
        held = socket.recv_multipart(copy=copy)
    del held
    seconds = time.perf_counter() - start
    socket.close(linger=0)
    context.term()
    return seconds


def _send_raw(endpoint: str, size: int, count: int, *, copy: bool) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.SNDHWM, _in_flight(size))
    socket.connect(endpoint)
    header, block = bytes(300), np.ones(size, np.uint8).data
    for _ in range(count):
        socket.send_multipart([header, block], copy=copy)
    socket.close(linger=30_000)
    context.term()


async def _receive_asyncio(endpoint: str, size: int, count: int) -> float:
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.RCVHWM, _in_flight(size))
    socket.bind(endpoint)
    await socket.recv_multipart(copy=False)
    start = time.perf_counter()
    for _ in range(count - 1):
        held = await socket.recv_multipart(copy=False)
    del held
    seconds = time.perf_counter() - start
    socket.close(linger=0)
    context.term()
    return seconds


async def _send_asyncio(endpoint: str, size: int, count: int) -> None:
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.SNDHWM, _in_flight(size))
    socket.connect(endpoint)
    header, block = bytes(300), np.ones(size, np.uint8).data
    for _ in range(count):
        await socket.send_multipart([header, block], copy=False)
    socket.close(linger=30_000)
    context.term()


async def _receive_link(endpoint: str, count: int) -> float:
    hub = Hub(endpoint, CONFIG)
    await hub.start()
    await welcomed(hub)
    (await hub.receive()).ack()
    start = time.perf_counter()
    for _ in range(count - 1):
        received = hub.receive_nowait() or await hub.receive()
        received.ack()
    seconds = time.perf_counter() - start
    await asyncio.sleep(0.05)
    await hub.close()
    return seconds


async def _send_link(endpoint: str, size: int, count: int, *, gathers: bool) -> None:
    hello = Hello(name="gen-0", incarnation="bench", pid=0)
    peer = await Peer.connect(endpoint, hello, CONFIG)
    message = episode(size, laid_out=not gathers)
    in_flight = _in_flight(size)
    for _ in range(count):
        await peer.wait_below(in_flight)
        await peer.send(message)
    await peer.flush(30)
    await peer.close()


def _in_flight(size: int) -> int:
    """Messages under way: many small ones, few large ones."""
    return max(4, min(1_000, IN_FLIGHT_BYTES // size))


def _sample_cost(repeats: int) -> dict[str, Any]:
    message = episode(17 * SAMPLE_TOKENS, laid_out=False)
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

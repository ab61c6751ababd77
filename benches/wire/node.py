"""One host of the link: a hub or a peer in a process of its own, told what to do on its stdin.

``python -m benches.wire.node hub|NAME ENDPOINT KEYS SEED`` sends numbered messages until the line
"stop", then waits until all of them are acknowledged and says "flushed"; at "end" it prints what it
sent and what came as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

from benches.wire.traffic import Ledger, _down, _hub_side, _peer_side, _up
from spade_async.config.schema import LinkConfig
from spade_async.transport.link import Hub, Peer
from spade_async.transport.messages import Hello


async def main(role: str, endpoint: str, keys: str, seed: int) -> None:
    """Run one host to its end."""
    config = LinkConfig(
        endpoint=endpoint, keys=keys or None, resend_s=0.5, max_message_bytes=1 << 22
    )
    orders: asyncio.Queue[str] = asyncio.Queue()
    reading = asyncio.create_task(_read(orders))
    rng, ledger = random.Random(seed), Ledger()
    link: Hub | Peer
    if role == "hub":
        link = Hub(endpoint, config)
        await link.start()
        taking = asyncio.create_task(_hub_side(link, ledger, rng))
    else:
        hello = Hello(name=role, incarnation=str(seed), pid=1)
        link = await Peer.connect(endpoint, hello, config, timeout_s=60)
        taking = asyncio.create_task(_peer_side(role, link, ledger, rng))
    _say("up")
    while orders.empty():
        if isinstance(link, Hub):
            for name in link.peers():
                await link.send(name, _down(ledger, name))
        else:
            await link.send(_up(ledger, role, rng))
        await asyncio.sleep(rng.random() * 0.02)
    assert await orders.get() == "stop"
    while _left(link):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    _say("flushed")
    assert await orders.get() == "end"
    taking.cancel()
    reading.cancel()
    _say(json.dumps(_report(link, ledger)))
    await link.close()


def _left(link: Hub | Peer) -> int:
    if isinstance(link, Hub):
        return sum(state.unacknowledged for state in link.peers().values())
    return link.num_unacknowledged


def _report(link: Hub | Peer, ledger: Ledger) -> dict[str, Any]:
    return {
        "sent": dict(ledger.sent),
        "came": {way: [len(n), sum(n.values())] for way, n in ledger.came.items()},
        "counters": link.counters.as_metrics(),
        "refused": link.counters.refused,
        "failed_handshakes": link.counters.failed_handshakes,
    }


async def _read(orders: asyncio.Queue[str]) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await reader.readline():
        orders.put_nowait(line.decode().strip())


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))

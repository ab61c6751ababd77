"""Numbered messages both ways over a bad network: what was lost, what was delivered twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from benches.wire.messages import episode
from benches.wire.network import BadRouter, CutWire
from spade_async.config.schema import LinkConfig
from spade_async.transport.link import Hub, Peer, Received
from spade_async.transport.messages import (
    EpisodeResult,
    Hello,
    Message,
    TrainingBatch,
    WeightsPublished,
    Welcome,
)

NAMES = ("gen-0", "gen-1", "learner")


@dataclass
class Ledger:
    """What was sent and what came, by direction ("gen-0 up", "learner down")."""

    sent: Counter[str] = field(default_factory=Counter)
    came: dict[str, Counter[int]] = field(default_factory=dict)

    def came_in(self, way: str, number: int) -> None:
        """Count one delivery."""
        self.came.setdefault(way, Counter())[number] += 1

    @property
    def lost(self) -> int:
        """Messages that were sent and never delivered."""
        return sum(
            len(set(range(sent)) - set(self.came.get(way, ()))) for way, sent in self.sent.items()
        )

    @property
    def doubled(self) -> int:
        """Deliveries beyond the first."""
        return sum(times - 1 for came in self.came.values() for times in came.values())


async def over_bad_network(seconds: float, seed: int) -> dict[str, Any]:
    """Three peers and a hub talk for `seconds` through both layers; then the network heals."""
    config = LinkConfig(resend_s=0.3, max_message_bytes=1 << 22)
    hub = Hub("tcp://127.0.0.1:*", config)
    await hub.start()
    router = BadRouter(hub.endpoint, seed)
    router.start()
    wire = CutWire(router.port, seed)
    endpoint = f"tcp://127.0.0.1:{await wire.start()}"
    rng, ledger = random.Random(seed), Ledger()
    tasks = [asyncio.create_task(_hub_side(hub, ledger, random.Random(seed + 1)))]
    peers: dict[str, Peer] = {}
    wire.is_bad = False
    for name in NAMES:
        hello = Hello(name=name, incarnation="1", pid=1)
        peers[name] = await Peer.connect(endpoint, hello, config, timeout_s=60)
    wire.is_bad = True
    for name, peer in peers.items():
        tasks.append(asyncio.create_task(_peer_side(name, peer, ledger, random.Random(name))))
    end_s = time.monotonic() + seconds
    oldest_s = 0.0
    next_cut_s = time.monotonic() + 0.5
    while time.monotonic() < end_s:
        name = rng.choice(NAMES)
        for _ in range(rng.randrange(1, 6)):
            await peers[name].send(_up(ledger, name, rng))
            await hub.send(name, _down(ledger, name))
        if time.monotonic() >= next_cut_s:
            wire.cut()
            next_cut_s = time.monotonic() + rng.choice((0.3, 1.0, 3.0))
        oldest_s = max([oldest_s, *(p.oldest_unacknowledged_s for p in hub.peers().values())])
        await asyncio.sleep(rng.random() * 0.01)
    router.bad_share, wire.is_bad = 0.0, False
    flushed = await asyncio.gather(*(peer.flush(60) for peer in peers.values()))
    heal_s = time.monotonic() + 60
    while sum(p.unacknowledged for p in hub.peers().values()):
        if time.monotonic() > heal_s:
            break
        await asyncio.sleep(0.02)
    left = sum(p.unacknowledged for p in hub.peers().values())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    counters = [hub.counters, *(peer.counters for peer in peers.values())]
    for peer in peers.values():
        await peer.close()
    await hub.close()
    await wire.close()
    router.stop()
    return {
        "seconds": seconds,
        "seed": seed,
        "sent": sum(ledger.sent.values()),
        "lost": ledger.lost + left + sum(not done for done in flushed),
        "doubled": ledger.doubled,
        "network": {
            "dropped": router.dropped, "doubled": router.doubled, "delayed": router.delayed,
            "cuts": wire.cuts, "passed": router.passed,
        },
        "resent": sum(c.resent for c in counters),
        "duplicates_refused": sum(c.duplicates for c in counters),
        "refused": {k: v for c in counters for k, v in c.refused.items()},
        "oldest_unacknowledged_s": oldest_s,
    }  # fmt: skip


def _up(ledger: Ledger, name: str, rng: random.Random) -> Message:
    way = f"{name} up"
    number = ledger.sent[way]
    ledger.sent[way] += 1
    size = rng.choice((0, 170, 3_400, 3_400, 3_400, 34_000, 170_000))
    return episode(size, laid_out=size > 100_000, index=number)


def _down(ledger: Ledger, name: str) -> Message:
    way = f"{name} down"
    number = ledger.sent[way]
    ledger.sent[way] += 1
    return WeightsPublished(version=number, location="/dev/shm/x", digest="0" * 64)


async def _hub_side(hub: Hub, ledger: Ledger, rng: random.Random) -> None:
    held: list[Received] = []
    while True:
        received = hub.receive_nowait()
        if received is None:
            _acknowledge(held, rng)
            await asyncio.sleep(0.003)
            continue
        message = received.message
        if isinstance(message, Hello):
            await hub.send(received.peer, Welcome())
        elif isinstance(message, EpisodeResult):
            assert len(message.token_ids) == len(message.versions)
            ledger.came_in(f"{received.peer} up", message.index)
            held.append(received)


async def _peer_side(name: str, peer: Peer, ledger: Ledger, rng: random.Random) -> None:
    held: list[Received] = []
    while True:
        received = peer.receive_nowait()
        if received is None:
            _acknowledge(held, rng)
            await asyncio.sleep(0.003)
            continue
        message = received.message
        assert isinstance(message, WeightsPublished)
        assert not isinstance(message, TrainingBatch)
        ledger.came_in(f"{name} down", message.version)
        held.append(received)


def _acknowledge(held: list[Received], rng: random.Random) -> None:
    """Late, in any order, some of them twice."""
    rng.shuffle(held)
    keep = min(len(held), rng.choice((0, 0, 1, 5)))
    for received in held[keep:]:
        received.ack()
        if rng.random() < 0.1:
            received.ack()
    del held[keep:]

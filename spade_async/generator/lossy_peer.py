"""A link that forgets results, for scripted runs (`scripted.swallow_share`)."""

from __future__ import annotations

import random
from typing import Any

from spade_async.seeds import derive
from spade_async.transport.link import Peer
from spade_async.transport.messages import DesignResult, EpisodeResult, Message


class LossyPeer:
    """A `Peer` whose `send` drops a share of the results; which ones follows from their names."""

    def __init__(self, peer: Peer, share: float, seed: int) -> None:
        self._peer = peer
        self._share = share
        self._seed = seed
        self.num_swallowed = 0

    async def send(self, message: Message) -> None:
        """Send, or do as if."""
        if isinstance(message, DesignResult | EpisodeResult):
            index = message.index if isinstance(message, EpisodeResult) else 0
            draw = random.Random(derive(self._seed, "swallow", message.task_id, index))
            if draw.random() < self._share:
                self.num_swallowed += 1
                return
        await self._peer.send(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)

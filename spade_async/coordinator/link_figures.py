"""What the ends of the link counted, added up for TensorBoard and `status`.

The hub's counters are at hand; those of the parts come with their heartbeats, so they are up to a
second old and end with a part that dies.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from spade_async.coordinator.dispatch import Dispatcher
from spade_async.transport.hub import Hub
from spade_async.transport.messages import Heartbeat

_SUMS = (
    "resent", "duplicates", "lost", "refused", "failed_handshakes", "unreachable",
    "connections_ended",
)  # fmt: skip


class LinkFigures:
    """Figures of both directions of the link."""

    def __init__(self, hub: Hub, dispatcher: Dispatcher) -> None:
        self._hub = hub
        self._dispatcher = dispatcher
        self._busy_s = 0.0
        self._taken_s = time.monotonic()

    def metrics(self, beats: Collection[Heartbeat]) -> dict[str, float]:
        """By tag; shares are over the time since the last call."""
        ours = self._hub.counters.as_metrics()
        theirs = [beat.metrics for beat in beats]
        peers = self._hub.peers().values()
        found = {
            f"link/{name}": ours[name] + sum(part.get(f"link_{name}", 0.0) for part in theirs)
            for name in _SUMS
        }
        for end, figures, start in (
            ("coordinator", ours, "refused/"),
            *((beat.name, beat.metrics, "link_refused/") for beat in beats),
        ):
            for name, value in figures.items():
                if name.startswith(start):
                    found[f"link/refused/{end}/{name.removeprefix(start)}"] = value
        found["link/unacknowledged"] = sum(peer.unacknowledged for peer in peers) + sum(
            part.get("link_unacknowledged", 0.0) for part in theirs
        )
        ages_s = [peer.oldest_unacknowledged_s for peer in peers]
        ages_s += [part.get("link_oldest_unacknowledged_s", 0.0) for part in theirs]
        found["link/oldest_unacknowledged_s"] = max(ages_s, default=0.0)
        found["link/credit"] = float(self._dispatcher.credit)
        found["link/credit_used"] = float(self._dispatcher.num_held)
        busy_s = ours["busy_s"] + sum(part.get("link_busy_s", 0.0) for part in theirs)
        now_s = time.monotonic()
        span_s = max(now_s - self._taken_s, 1e-9)
        # A part that was started again counts from 0.
        found["link/busy_share"] = max(busy_s - self._busy_s, 0.0) / span_s
        found["link/busy_s"] = busy_s
        self._busy_s, self._taken_s = busy_s, now_s
        return found

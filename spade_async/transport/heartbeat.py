"""Heartbeats from a thread of their own, so that a busy model does not look dead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from spade_async.transport.messages import Heartbeat, Message

_LOG = logging.getLogger(__name__)


class HeartbeatThread:
    """Sends one `Heartbeat` a second through `post` (`Peer.post`) until `stop`.

    Example: ``HeartbeatThread(peer.post, "gen-0", lambda: {"state": "working", "progress": 3})``.
    """

    def __init__(
        self,
        post: Callable[[Message], None],
        name: str,
        snapshot: Callable[[], Mapping[str, Any]],
        interval_s: float = 1.0,
    ) -> None:
        """`snapshot` runs in the thread and gives any of Heartbeat's fields but `name`.

        state, waits_for, progress, oldest_wait_s, jail, metrics; missing ones get a neutral value.
        """
        self._post = post
        self._name = name
        self._snapshot = snapshot
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> HeartbeatThread:
        """Start; the first heartbeat goes out at once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop and wait for the thread (at most a second)."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def _run(self) -> None:
        is_broken = False
        while not self._stopped.is_set():
            try:
                self._post(self._heartbeat())
                is_broken = False
            except Exception:
                # A snapshot that fails must not silence the thread for good; log once per streak.
                if not is_broken:
                    _LOG.exception("heartbeat of %s failed", self._name)
                is_broken = True
            self._stopped.wait(self._interval_s)

    def _heartbeat(self) -> Heartbeat:
        facts = self._snapshot()
        metrics = facts.get("metrics") or {}
        return Heartbeat(
            name=self._name,
            state=str(facts.get("state", "working")),
            waits_for=str(facts.get("waits_for", "")),
            progress=int(facts.get("progress", 0)),
            oldest_wait_s=float(facts.get("oldest_wait_s", 0.0)),
            jail=str(facts.get("jail", "")),
            metrics={str(name): float(value) for name, value in metrics.items()},
        )

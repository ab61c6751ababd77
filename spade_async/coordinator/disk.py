"""The coordinator on a full disk: it pauses by name, answers nothing it cannot keep, and goes on.

Two lines of defence. Before each turn the free room is looked at: below `LEAST_BYTES` results stay
where they are, unacknowledged, and only heartbeats are read. When room vanishes between that look
and a commit, the ledger waits inside its transaction and makes it again (`Ledger.wait_on_full`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from spade_async.coordinator.core import Core
from spade_async.disk.ballast import Ballast
from spade_async.disk.room import RETRY_S, free_bytes
from spade_async.transport.hub import Received
from spade_async.transport.messages import Heartbeat

log = logging.getLogger(__name__)

LEAST_BYTES = 8 << 20
"""Free room below which nothing is taken: a turn writes less than this."""
ENOUGH_BYTES = 12 << 20
"""Free room from which a paused run goes on."""


MOST_HELD = 4096
"""Messages kept in memory meanwhile."""


class DiskPause:
    """Whether the run folder's disk has room, and what is said while it has not."""

    def __init__(self, core: Core, on_wait: Callable[[], None]) -> None:
        """Begin.

        Args:
            core: told by alerts.
            on_wait: called at every try while the ledger waits inside a transaction.
        """
        self._core = core
        self._on_wait = on_wait
        self._root = core.folder.root
        self._ballast = Ballast(self._root)
        self._ballast.load()
        self._since_s: float | None = None
        self._held: list[Received] = []
        core.ledger.wait_on_full(self.wait_in_transaction)

    @property
    def is_paused(self) -> bool:
        """Whether the run waits for room now, as of the last look."""
        return self._since_s is not None

    @property
    def waits_for(self) -> str:
        """What the run waits for, "" when it does not."""
        if self._since_s is None:
            return ""
        return (
            f"disk: {self._root} has {free_bytes(self._root) >> 20} MiB free, the run waits for "
            f"{ENOUGH_BYTES >> 20}; free some space, it goes on by itself"
        )

    def has_room(self) -> bool:
        """Look; tells once that the run pauses and once that it goes on."""
        free = free_bytes(self._root)
        if self._since_s is None:
            if free >= LEAST_BYTES:
                return True
            self._pause(free)
            return False
        if free < ENOUGH_BYTES:
            return False
        seconds = time.monotonic() - self._since_s
        self._since_s = None
        self._ballast.load()
        self._core.alert(
            f"{self._root} has {free >> 20} MiB free: the run goes on after {seconds:.0f} s",
            kind="disk_room",
        )
        return True

    @property
    def holds_enough(self) -> bool:
        """Whether no more should be taken from the link: its credits hold the rest back."""
        return len(self._held) >= MOST_HELD

    async def hold(self, received: list[Received], heartbeat: Callable[[Heartbeat], None]) -> None:
        """Keep what came, unacknowledged and in order; only who lives is heard."""
        for item in received:
            if isinstance(item.message, Heartbeat):
                heartbeat(item.message)
                item.ack()
            else:
                self._held.append(item)
        if self.holds_enough:
            await asyncio.sleep(RETRY_S)

    def release(self) -> list[Received]:
        """What was held, to be taken in before anything newer."""
        held, self._held = self._held, []
        return held

    def wait_in_transaction(self) -> None:
        """Block until there is room: a commit found none."""
        if self._since_s is None:
            self._pause(free_bytes(self._root))
        while True:
            self._on_wait()
            time.sleep(RETRY_S)
            if self.has_room():
                return

    def _pause(self, free: int) -> None:
        self._since_s = time.monotonic()
        self._ballast.drop()
        self._core.alert(
            f"the disk of {self._root} is full ({free >> 20} MiB free): the run waits, nothing is "
            "lost",
            kind="disk_full",
        )

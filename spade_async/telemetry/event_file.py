"""A TensorBoard event file that survives a full disk: what does not fit is kept for later.

TensorBoard's own writer has a thread that dies at the first error and takes its events with it.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from pathlib import Path

from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from spade_async.disk.room import is_full

log = logging.getLogger(__name__)

MOST_PENDING_BYTES = 64 << 20
"""Events beyond this are dropped and counted while nothing can be written."""
PREFIX = "events.out.tfevents."
_number = itertools.count()


class EventFile:
    """Appends events to a new file in a folder. One thread.

    Args:
        folder: must exist.
        flush_s: longest time an event stays in memory while others come.
    """

    def __init__(self, folder: Path, flush_s: float) -> None:
        name = (
            f"{PREFIX}{_next_unix_s(folder):010d}.{socket.gethostname()}.{os.getpid()}."
            f"{next(_number)}"
        )
        self.path = folder / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o644)
        self._flush_s = flush_s
        self._flushed_s = time.monotonic()
        self._pending = bytearray()
        self._is_full = False
        self.num_dropped = 0
        self._records = RecordWriter(self)
        self.add(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"))
        self.flush()

    def add(self, event: event_pb2.Event) -> None:
        """Queue one event."""
        if len(self._pending) > MOST_PENDING_BYTES:
            self.num_dropped += 1
            return
        self._records.write(event.SerializeToString())
        self.flush_if_due()

    def write(self, data: bytes) -> None:
        """Take the bytes of one record (called by the record writer)."""
        self._pending += data

    def flush_if_due(self) -> None:
        """Flush when the last one is `flush_s` ago."""
        if time.monotonic() - self._flushed_s >= self._flush_s:
            self.flush()

    def flush(self) -> bool:
        """Write what is pending; False when the disk is full and some of it is left."""
        self._flushed_s = time.monotonic()
        try:
            while self._pending:
                # Part of a record may fit: the rest follows it when there is room.
                written = os.write(self._descriptor, self._pending)
                del self._pending[:written]
        except OSError as cause:
            if not is_full(cause):
                raise
            if not self._is_full:
                log.error("%s: %s; events are kept in memory", self.path, cause)
            self._is_full = True
            return False
        self._is_full = False
        return True

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        os.close(self._descriptor)


def _next_unix_s(folder: Path) -> int:
    """Seconds for the name of a new file: now, and after every file that is there.

    TensorBoard reads the files of a folder in the order of their names. Were the clock set back
    between two starts of a run, the newer file would be read first and its start taken for the
    beginning.
    """
    stamps = [path.name.removeprefix(PREFIX)[:10] for path in folder.glob(f"{PREFIX}*")]
    return max(int(time.time()), *(int(stamp) + 1 for stamp in stamps if stamp.isdigit()), 0)

"""Ctrl-C, SIGTERM and a closed terminal, counted and made visible to a selector."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Counts requests to stop; `fd` becomes readable at each. Main thread only.

    The first asks for a clean stop, the second for an end at once.
    """

    def __init__(self) -> None:
        self.count = 0
        self.fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(signum)
            # nohup ignores SIGHUP on purpose.
            if signum is signal.SIGHUP and before is signal.SIG_IGN:
                continue
            self._before[signum] = before
            signal.signal(signum, self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, before)
        os.close(self.fd)
        os.close(self._write_fd)

    def drain(self) -> None:
        """Make `fd` unreadable again; the count stays."""
        try:
            while os.read(self.fd, 64):
                pass
        except BlockingIOError:
            pass

    def _count(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_fd, b"!")

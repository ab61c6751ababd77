"""What the supervisor tells the coordinator: one JSON object a line on standard input.

The supervisor sees deaths exactly (pidfd) and decides on restarts; the coordinator must know at
once, because it asks for a dead part's work again. A coordinator started by hand has no such pipe.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class News:
    """A part died."""

    name: str
    """"gen-0", "learner"."""
    text: str
    """How, e.g. "gen-0 (pid 7) was killed by SIGKILL"."""
    again_in_s: float | None
    """Seconds until it is started again; None when it is not."""
    cause: str = ""
    """What tells one kind of death from another: "generator signal 9"; "" when not known."""
    died_s: float | None = None
    """`time.monotonic` of this machine when its end was seen."""

    def line(self) -> bytes:
        """As it goes through the pipe."""
        return json.dumps(asdict(self)).encode() + b"\n"


def listen(on_news: Callable[[News], None], fd: int = 0) -> None:
    """Hand each line that comes in to `on_news`, in the running event loop; not when no pipe."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        return
    os.set_blocking(fd, False)
    loop = asyncio.get_running_loop()
    pending = b""

    def read() -> None:
        nonlocal pending
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not chunk:
            # The supervisor is gone: the lifeline ends us.
            loop.remove_reader(fd)
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            try:
                on_news(News(**json.loads(line)))
            except (ValueError, TypeError):
                log.exception("the supervisor said what cannot be understood: %.200r", line)

    loop.add_reader(fd, read)

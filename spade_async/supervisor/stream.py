"""Output that may lose its reader: a closed pipe or terminal must not end a training run."""

from __future__ import annotations

import os
from typing import IO, Any, cast


class SteadyStream:
    """A text stream that drops what can no longer be written, from the first failure on.

    rich ends the process at a broken pipe; here the run matters more than what is shown of it.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop the text when nobody can read it."""
        try:
            return self._stream.write(text)
        except OSError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Flush, or drop what is buffered."""
        try:
            self._stream.flush()
        except OSError:
            self._drop()

    def _drop(self) -> None:
        # The buffer is kept by Python and flushed again at exit: give that a place to go.
        null_fd = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_fd, self._stream.fileno())
        os.close(null_fd)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def steady(stream: IO[str]) -> IO[str]:
    """`stream` as a `SteadyStream`, in the type that consoles take."""
    return cast(IO[str], SteadyStream(stream))

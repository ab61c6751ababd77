"""Frames between a bench and `standalone.py`."""

from __future__ import annotations

import struct
from typing import IO

LOAD, RESET, STEP = 0, 1, 2


def ask(requests: IO[bytes], replies: IO[bytes], kind: int, text: str) -> str:
    """One call and its reply.

    Raises:
        RuntimeError: the process is gone, or what it runs failed.
    """
    body = bytes([kind]) + text.encode()
    frame = struct.pack("<I", len(body)) + body
    try:
        requests.write(frame)
        requests.flush()
    except BrokenPipeError:
        raise RuntimeError("it left before it was asked") from None
    answer = _read(replies, struct.unpack("<I", _read(replies, 4))[0])
    text = answer[1:].decode()
    if answer[0] != 0:
        raise RuntimeError(f"outcome {answer[0]}: {text[:200]}")
    return text


def _read(replies: IO[bytes], count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = replies.read(count - len(data))
        if not part:
            raise RuntimeError("it left without a reply")
        data += part
    return data

"""Runs where sandlock is installed: times the start of a jailed runner up to its first reply.

``python sandlock_helper.py FOLDER:FOLDER... COMMAND ...``; each frame on standard input carries a
source, each reply the microseconds as text.
"""

import struct
import sys
import time

import sandlock
from sandlock.sandbox import StdioMode

from benches.ladder import frame


def first_reply(folders: list[str], argv: list[str], source: str) -> float:
    """Microseconds from the start of the jail to the reply of its first reset."""
    begun = time.perf_counter()
    jail = sandlock.Sandbox(fs_readable=[*folders, "/dev/null", "/dev/urandom"])
    process = jail.popen(argv, stdin=StdioMode.PIPED, stdout=StdioMode.PIPED, stderr=StdioMode.NULL)
    try:
        frame.ask(process.stdin, process.stdout, frame.LOAD, f"7\n{source}")
        frame.ask(process.stdin, process.stdout, frame.RESET, "7")
        return (time.perf_counter() - begun) * 1e6
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Serve until the input ends."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while header := requests.read(4):
        source = requests.read(*struct.unpack("<I", header))[1:].decode()
        try:
            answer = (
                b"\0" + repr(first_reply(sys.argv[1].split(":"), sys.argv[2:], source)).encode()
            )
        except Exception as error:
            answer = b"\1" + f"{type(error).__name__}: {error}".encode()[:400]
        replies.write(struct.pack("<I", len(answer)) + answer)
        replies.flush()


if __name__ == "__main__":
    main()

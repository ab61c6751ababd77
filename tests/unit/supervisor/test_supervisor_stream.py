from __future__ import annotations

import os

from spade_async.supervisor.stream import SteadyStream


def test_stream_without_a_reader_drops_what_it_is_given() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with os.fdopen(write_fd, "w") as pipe:
        stream = SteadyStream(pipe)
        for _ in range(3):
            assert stream.write("x" * 100_000) == 100_000
            stream.flush()


def test_stream_with_a_reader_passes_everything_on() -> None:
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd) as source, os.fdopen(write_fd, "w") as pipe:
        stream = SteadyStream(pipe)
        stream.write("one line\n")
        stream.flush()
        assert source.readline() == "one line\n"
        assert not stream.isatty()
        assert stream.encoding == pipe.encoding

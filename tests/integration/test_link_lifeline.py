from __future__ import annotations

import os
import subprocess
import sys

from spade_async.transport.lifeline import EXIT_SUPERVISOR_LOST, watch

CHILD = """
import sys, time
from spade_async.transport.lifeline import watch
watch(int(sys.argv[1]), on_lost=lambda: print("lost", flush=True))
print("up", flush=True)
while True:
    time.sleep(60)
"""


def test_a_process_ends_when_the_holder_of_the_pipe_is_gone():
    reader, writer = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(reader)],
        pass_fds=[reader],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(reader)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    os.write(writer, b"x")
    assert child.poll() is None
    os.close(writer)
    out, err = child.communicate(timeout=10)
    assert child.returncode == EXIT_SUPERVISOR_LOST
    assert out == "lost\n"
    assert "the supervisor is gone" in err


def test_without_a_pipe_nothing_is_watched():
    assert watch(None) is None

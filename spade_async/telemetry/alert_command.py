"""The user's own command for alerts: one at a time, in a thread, for a bounded time.

It gets the alert as one line of JSON on stdin. It never blocks the run: when it is slower than the
alerts come, the oldest that wait are dropped; a failure is a line in the log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

log = logging.getLogger(__name__)

LIMIT_S = 10.0
"""After this long the command and its process group are killed."""
MOST_WAITING = 16


class AlertCommand:
    """Runs the command for each alert.

    Args:
        command: a string for `/bin/sh -c`, or an argument list.
        limit_s: most seconds of one run.
    """

    def __init__(self, command: str | Sequence[str], limit_s: float = LIMIT_S) -> None:
        text = isinstance(command, str)
        self._argv = ["/bin/sh", "-c", str(command)] if text else list(command)
        self._limit_s = limit_s
        self._waiting: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self.num_failed = 0
        # Daemon: a command that hangs must not keep the process from leaving.
        self._thread = threading.Thread(target=self._work, name="alert-command", daemon=True)
        self._thread.start()

    def run(self, line: str) -> None:
        """Queue one alert; returns at once."""
        while self._waiting.qsize() >= MOST_WAITING:
            with contextlib.suppress(queue.Empty):
                self._waiting.get_nowait()
                log.warning("an alert was not given to run.alert_command: it is too slow")
        self._waiting.put(line)

    def close(self, timeout_s: float) -> None:
        """Let what is queued run, for so long; then what still runs is killed."""
        self._waiting.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._is_over = True
            if (process := self._process) is not None:
                _kill(process)
            self._thread.join(1.0)

    def _work(self) -> None:
        while (line := self._waiting.get()) is not None and not self._is_over:
            try:
                self._run(line)
            except OSError as cause:
                self._failed(f"cannot be started: {cause}")

    def _run(self, line: str) -> None:
        process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=None,  # our log
            start_new_session=True,
        )
        self._process = process
        deadline = time.monotonic() + self._limit_s
        try:
            _feed(process, (line + "\n").encode(), deadline)
            code = process.wait(max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            self._failed(f"took longer than {self._limit_s:g} s and was killed")
        else:
            if code != 0:
                self._failed(f"ended with {code}")
        finally:
            _kill(process)
            self._process = None
            process.wait()

    def _failed(self, how: str) -> None:
        self.num_failed += 1
        log.error("run.alert_command %s %s", self._argv, how)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the command and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _feed(process: subprocess.Popen[bytes], data: bytes, deadline: float) -> None:
    """Write all of `data` to the command; one that does not read is given up at the deadline."""
    assert process.stdin is not None
    descriptor = process.stdin.fileno()
    os.set_blocking(descriptor, False)
    try:
        while data and time.monotonic() < deadline and process.poll() is None:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                time.sleep(0.02)
    except BrokenPipeError:
        pass  # it need not read
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()

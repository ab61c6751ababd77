"""The limits of this machine: F, a raw clone of a warm interpreter, and R, a round trip.

F is clone3(CLONE_NEWPID) up to the child's first byte over a pipe, timed natively in the parent,
from a template that has imported the same modules and done nothing else: no hooks filtered, no
freeze, nothing warmed. It is taken once per round like every other rung of its size, so it finds
the caches as they do; F_hot follows another clone at once. R is a no-op of 64 bytes there and back
over two pipes, native at both ends; R over many live is that with each of many processes in turn.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from contextlib import ExitStack
from typing import IO

from benches.ladder.plan import ENVIRONMENT, INTERPRETER, Plan, import_names, import_paths
from benches.ladder.row import Row
from spade_async import _sandbox_rs

_PROGRAM = """
import importlib, sys
from importlib import util
entry, path, *rest = sys.argv[1:]
cut = rest.index("--")
sys.path[:0] = rest[:cut]
for name in rest[cut + 1:]:
    importlib.import_module(name)
spec = util.spec_from_file_location("_sandbox_rs", path)
module = util.module_from_spec(spec)
spec.loader.exec_module(module)
getattr(module, entry)()
"""


_MANY = """
import os, signal, sys
from importlib import util
path, *ends = sys.argv[1:]
spec = util.spec_from_file_location("_sandbox_rs", path)
module = util.module_from_spec(spec)
spec.loader.exec_module(module)
pids = []
for requests, replies in zip(ends[::2], ends[1::2]):
    pids.append(os.fork())
    if pids[-1] == 0:
        os.dup2(int(requests), 0)
        os.dup2(int(replies), 1)
        os.closerange(2, 1 << 16)
        module._probe_echo()
sys.stdin.read()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
"""


class Many:
    """Many processes that send no-ops back, forks of one interpreter. They end with it."""

    def __init__(self, count: int) -> None:
        pipes = [(*os.pipe(), *os.pipe()) for _ in range(count)]
        far = [end for pipe in pipes for end in (pipe[0], pipe[3])]
        argv = [sys.executable, *INTERPRETER, "-c", _MANY, _sandbox_rs.__file__, *map(str, far)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=far, env=ENVIRONMENT)
        for end in far:
            os.close(end)
        self._ends = [(pipe[1], pipe[2]) for pipe in pipes]

    def close(self) -> None:
        """End them all."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        for ends in self._ends:
            os.close(ends[0])
            os.close(ends[1])

    def sweep(self) -> list[float]:
        """Microseconds of one no-op with each, one after the other."""
        return [_sandbox_rs._probe_round_trips(*ends, 1)[0] / 1e3 for ends in self._ends]


class Far:
    """An interpreter that serves one of the native probes over its standard streams."""

    def __init__(self, entry: str, names: list[str]) -> None:
        argv = [sys.executable, *INTERPRETER, "-c", _PROGRAM, entry, _sandbox_rs.__file__]
        self._process = subprocess.Popen(
            [*argv, *import_paths(), "--", *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.requests: IO[bytes] = self._process.stdin
        self.replies: IO[bytes] = self._process.stdout

    def close(self) -> None:
        """End it and collect it."""
        self.requests.close()
        self._process.kill()
        self._process.wait()
        self.replies.close()

    def clone(self) -> tuple[float, float]:
        """Microseconds to the first byte of a clone, and until it was collected."""
        self.requests.write(b"c")
        answer = self.replies.read(16)
        if len(answer) != 16:
            raise RuntimeError("the clone probe left; run it as root or with user namespaces")
        first, whole = struct.unpack("<QQ", answer)
        return first / 1e3, whole / 1e3

    def round_trips(self, count: int) -> list[float]:
        """Microseconds of no-op round trips."""
        pipes = self.requests.fileno(), self.replies.fileno()
        return [time / 1e3 for time in _sandbox_rs._probe_round_trips(*pipes, count)]


def rows(stack: ExitStack, plan: Plan) -> list[Row]:
    """F with the standard modules, F with numpy, R."""
    stdlib = Far("_probe_template", import_names(numpy=False))
    stack.callback(stdlib.close)
    numpy = Far("_probe_template", import_names(numpy=True))
    stack.callback(numpy.close)
    echo = Far("_probe_echo", [])
    stack.callback(echo.close)
    echo.round_trips(100)
    many = Many(plan.num_live)
    stack.callback(many.close)
    many.sweep()

    def hot(far: Far) -> list[float]:
        far.clone()
        return [far.clone()[0] for _ in range(2)]

    return [
        Row("limit_us.F", "F: raw clone, stdlib template", lambda: [stdlib.clone()[0]]),
        Row("limit_us.F_numpy", "F: raw clone, numpy template", lambda: [numpy.clone()[0]]),
        Row("limit_us.F_hot", "F right after a clone", lambda: hot(stdlib)),
        Row("limit_us.F_numpy_hot", "F numpy right after a clone", lambda: hot(numpy)),
        Row(
            "limit_us.R",
            "R: no-op round trip, pipe, native ends",
            lambda: echo.round_trips(plan.steps_per_turn),
        ),
        Row(
            f"limit_us.R_live_{plan.num_live}",
            f"R over {plan.num_live} live processes",
            many.sweep,
        ),
    ]

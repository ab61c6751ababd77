"""An answer counts although its writer has ended and the thread that reads it is late.

A host thread may lose the CPU between taking an answer out of the pipe and bringing it in. Tried by
holding up each of its reads from outside.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from tests.support.family import Family

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import collections, shutil, subprocess, threading, time
from spade_async.sandbox import SandboxPolicy, SyncPool
from tests.attacks.case import Case
from tests.attacks.test_poison_protocol import FORGE

# It answers for itself and is gone before its answer is looked at.
answers = Case("", "send(frame(3, b'one', 1.0)); end()", head=FORGE).source()
leaves = Case("", "end()", head=FORGE).source()
crashes = Case("", "import ctypes; ctypes.string_at(0)", head=FORGE).source()
delay = ["-e", "trace=read", "-e", "inject=read:delay_exit=20000"]
seen = collections.Counter()
policy = SandboxPolicy(num_workers=2, spares=2, imports=("ctypes",))
with SyncPool(policy) as pool:
    thread = str(threading.get_native_id())
    tracer = subprocess.Popen(
        ["strace", "-p", thread, *delay, "-o", "/dev/null"], stderr=subprocess.PIPE, text=True
    )
    said = tracer.stderr.readline()  # "strace: Process 1 attached", or why not
    if "attached" not in said:
        print("no stage:", said)
        raise SystemExit
    for name, source in (("answers", answers), ("leaves", leaves), ("crashes", crashes)):
        for seed in range(12):
            with pool.session(source, seed) as session:
                assert session.reset().ok
                reply = session.step("go")
                seen[name, reply.outcome.value, reply.observation, reply.detail] += 1
                last = session.step("again")
                seen[name, "again", last.outcome.value, last.detail] += 1
    tracer.terminate()
    tracer.wait()
for key, count in sorted(seen.items()):
    print(*key, count, sep="|")
"""


def test_an_answer_in_the_hands_of_a_late_thread_is_not_lost_when_its_worker_ends() -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True,
        timeout=150, check=False,
    )  # fmt: skip
    if "no stage" in done.stdout:
        pytest.skip(f"strace cannot trace here: {done.stdout}")
    assert done.returncode == 0, done.stderr
    left = "left by itself with code 0"
    assert done.stdout.splitlines() == [
        f"answers|again|crashed|{left}|12",
        "answers|finished|one||12",
        "crashes|again|crashed|killed by SIGSEGV|12",
        "crashes|crashed||killed by SIGSEGV|12",
        f"leaves|again|crashed|{left}|12",
        f"leaves|crashed||{left}|12",
    ]


CRASHES = """
import ctypes
class CrashEnv:
    def reset(self, seed=None): return "on", {}
    def step(self, action): ctypes.string_at(0)
"""


def test_a_worker_that_crashed_is_told_as_that_when_the_broker_is_late() -> None:
    policy = SandboxPolicy(num_workers=1, spares=0, imports=("ctypes",))
    with SyncPool(policy) as pool:
        family = Family()
        with pool.session(CRASHES, 1) as session:
            assert session.reset().ok
            os.kill(family.brokers[0], signal.SIGSTOP)
            go_on = threading.Timer(1.5, os.kill, (family.brokers[0], signal.SIGCONT))
            go_on.start()
            began = time.monotonic()
            reply = session.step("go")
            go_on.join()
    assert (reply.outcome.value, "SIGSEGV" in reply.detail) == ("crashed", True)
    assert time.monotonic() - began > 1.0, "the broker was not late"

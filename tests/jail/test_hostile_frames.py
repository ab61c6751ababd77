"""Workers that write hostile bytes where their replies go, against a real pool.

Every call must end with a typed outcome before its deadline, the siblings must not notice, and the
host must not grow. The parser alone is tried with a million frames in
`sandbox_rs/tests/hostile_frames.rs`.
"""

import collections
import os
import queue
import threading
import time
from pathlib import Path

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.types import Outcome

pytestmark = pytest.mark.timeout(300)

SESSIONS = 2_000
THREADS = 4
PATIENCE_S = 30.0
"""Far above every deadline here, stretched for a starved worker: beyond it a call hangs."""
POLICY = SandboxPolicy(
    num_workers=THREADS + 1, spares=4, wall_s_per_call=0.5, cpu_s_per_call=0.25, load_wall_s=1.0,
    memory_bytes=64 << 20, reply_bytes=4096,
)  # fmt: skip

HOSTILE = r"""
import os, struct

ATTACKS = (
    "garbage", "zeros", "huge", "huge and full", "cut", "cut and leave", "trickle", "forged",
    "forged early", "forged nan", "forged text", "forged many", "wrong sequence", "doubled",
    "finaliser", "closed", "shuffled", "code", "code many",
)
CALL = {"load": 1, "reset": 2, "step": 3}

def write(data):
    # Where replies go is not our business to know: every descriptor that takes the bytes.
    for fd in (0, 1, 2):
        try:
            os.write(fd, data)
        except OSError:
            pass

def frame(sequence, text=b"forged", detail=b"", outcome=0, flags=4, reward=0.5, length=None):
    length = len(text) if length is None else length
    body = struct.pack("<IBBdI", sequence, outcome, flags, reward, length) + text + detail
    return struct.pack("<I", len(body)) + body

class Last:
    def __del__(self):
        write(frame(99) * 3)

class HostileEnv:
    def __init__(self):
        self.kind = ATTACKS[KIND % len(ATTACKS)]
        self.where = ("load", "reset", "step")[KIND // len(ATTACKS) % 3]
        self.attack("load")
    def reset(self, seed=None):
        self.attack("reset")
        return "start", {}
    def step(self, action):
        self.attack("step")
        return "done", 1.0, True, False, {"last": Last() if self.kind == "finaliser" else None}
    def attack(self, where):
        if where != self.where:
            return
        kind, call = self.kind, CALL[where]
        if kind == "garbage":
            write(random.randbytes(random.randint(1, 5000)))
        elif kind == "zeros":
            write(bytes(random.randint(1, 5000)))
        elif kind == "huge":
            write(struct.pack("<I", random.choice([8193, 1 << 20, 1 << 28, 1 << 31, 2**32 - 1])))
        elif kind == "huge and full":
            write(struct.pack("<I", 2**32 - 1) + bytes(60_000))
        elif kind == "cut":
            write(frame(call)[:random.randint(1, 25)])
        elif kind == "cut and leave":
            write(frame(call)[:random.randint(0, 25)])
            os._exit(random.randint(0, 3))
        elif kind == "trickle" and KIND % 5:
            write(frame(call)[:1])
            write(frame(call)[1:9])
        elif kind == "trickle":
            for byte in frame(call, b"x" * 4000):
                write(bytes([byte]))
                time.sleep(0.05)
        elif kind == "forged":
            write(frame(call, flags=random.randint(0, 7)))
        elif kind == "forged early":
            write(frame(call) + frame(call + 1) + frame(call + 2))
        elif kind == "forged nan":
            write(frame(call, reward=random.choice([math.nan, math.inf, -math.inf])))
        elif kind == "forged text":
            write(frame(call, random.choice([b"\xff", b"\xed\xa0\x80", b"\xc0\x80"])))
        elif kind == "forged many":
            write(b"".join(frame(i, b"x" * (i % 50)) for i in range(1000)))
        elif kind == "wrong sequence":
            write(frame(random.choice([0, call - 1, call + 1, 2**32 - 1])))
        elif kind == "doubled":
            write(frame(call, flags=4 if where == "step" else 0) * 2)
        elif kind == "finaliser":
            last = Last()
        elif kind == "closed":
            os.closerange(0, 3)
            while True: pass
        elif kind == "code":
            code = struct.pack("<IB", call, 255) + random.randbytes(random.randint(0, 9000))
            write(struct.pack("<I", len(code)) + code + frame(call, flags=0))
        elif kind == "code many":
            code = struct.pack("<IB", call, 255) + b"x = 1"
            write((struct.pack("<I", len(code)) + code) * 100)
        elif kind == "shuffled":
            data = bytearray(frame(call) * 20)
            random.shuffle(data)
            write(bytes(data))
import time
"""

GOOD = """
class GoodEnv:
    def reset(self, seed=None):
        return f"start {random.random():.12f}", {}
    def step(self, action):
        return f"{action} {random.random():.12f}", 0.25, False, False, {}
"""


def hostile_session(pool: SyncPool, kind: int) -> list[Outcome]:
    """Outcomes of load, reset and two steps; each call must end in time."""
    outcomes = []
    begun = time.monotonic()
    # A few sources, many seeds: each source is compiled once and then loaded as code.
    with pool.session(f"KIND = {kind % (19 * 6)}\n" + HOSTILE, kind) as session:
        outcomes.append(session.loaded.outcome)
        for call in (session.reset, lambda: session.step("a"), lambda: session.step("b")):
            assert time.monotonic() - begun < PATIENCE_S
            reply = call()
            outcomes.append(reply.outcome)
            assert len(reply.detail) <= 4096
            assert reply.reward is None or (reply.ok and abs(reply.reward) < 1e308)
            begun = time.monotonic()
    return outcomes


def good_session(pool: SyncPool) -> list[tuple[Outcome, str, float | None]]:
    with pool.session(GOOD, 7) as session:
        replies = [session.loaded, session.reset(), *(session.step(str(i)) for i in range(5))]
    return [(reply.outcome, reply.observation, reply.reward) for reply in replies]


POISON = """
import marshal, os, struct
def frame(*parts):
    body = b"".join(parts)
    os.write(1, struct.pack("<I", len(body)) + body)
class FirstEnv:
    def __init__(self):
        evil = compile("class EvilEnv:\\n def reset(self, s): return 'evil', {}\\n", "e", "exec")
        for _ in range(COPIES):
            frame(struct.pack("<IB", 1, 255), marshal.dumps(evil))
    def reset(self, seed=None):
        for sequence in range(1, 9):
            frame(struct.pack("<IB", sequence, 255), b"junk")
        return "first", {}
"""


@pytest.mark.parametrize("copies", [0, 1, 3])
def test_what_a_source_says_about_its_own_code_never_reaches_its_next_episode(copies):
    source = f"COPIES = {copies}\n" + POISON
    with SyncPool(SandboxPolicy(num_workers=2, spares=1, imports=("marshal",))) as pool:
        seen = set()
        for _ in range(4):
            with pool.session(source, 0) as session:
                replies = [session.loaded, session.reset()]
            seen.add(tuple((reply.outcome, reply.observation) for reply in replies))
        assert "evil" not in str(seen)
        assert len(seen) == 1, seen
        refused = (Outcome.PROTOCOL_VIOLATION, "")
        first = refused if copies else (Outcome.FINISHED, "")
        assert seen == {(first, refused)}
        assert good_session(pool)


def test_threads_of_garbage_end_their_worker_and_nothing_else():
    source = """
import os, threading, time
def flood(fd, data):
    while True:
        os.write(fd, data)
class ThreadEnv:
    def reset(self, seed=None):
        for at in range(4):
            threading.Thread(target=flood, args=(1, bytes([at]) * 4096), daemon=True).start()
        time.sleep(0.2)
        return "start", {}
    def step(self, action): return "x", 0.0, False, False, {}
"""
    policy = SandboxPolicy(
        num_workers=4, spares=1, profiles=("threads",), wall_s_per_call=5.0, cpu_s_per_call=5.0
    )
    with SyncPool(policy) as pool:
        alone = good_session(pool)
        for seed in range(20):
            with pool.session(source, seed) as session:
                outcomes = [session.loaded.outcome, session.reset().outcome]
                outcomes += [session.step("a").outcome for _ in range(3)]
            assert Outcome.PROTOCOL_VIOLATION in outcomes or Outcome.OVER_OUTPUT in outcomes
            assert good_session(pool) == alone


def size_of_host(pool: SyncPool) -> tuple[int, int]:
    """Resident bytes and open descriptors, once the pool is at rest."""
    pool.drain_latencies()
    until = time.monotonic() + 10
    while pool.stats()["spare"] < POLICY.spares and time.monotonic() < until:
        time.sleep(0.01)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))


def test_two_thousand_hostile_workers_harm_neither_host_nor_siblings():
    with SyncPool(POLICY) as pool:
        alone = good_session(pool)
        assert all(outcome is Outcome.FINISHED for outcome, *_ in alone)
        seen: collections.Counter[Outcome] = collections.Counter()
        faults: list[BaseException] = []
        sizes, num_good = [], 0

        def play(kinds: "queue.SimpleQueue[int]") -> None:
            try:
                while True:
                    seen.update(hostile_session(pool, kinds.get_nowait()))
            except queue.Empty:
                pass
            except BaseException as error:
                faults.append(error)

        for half in range(2):
            kinds: queue.SimpleQueue[int] = queue.SimpleQueue()
            for kind in range(half * SESSIONS // 2, (half + 1) * SESSIONS // 2):
                kinds.put(kind)
            threads = [threading.Thread(target=play, args=(kinds,)) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                assert good_session(pool) == alone
                num_good += 1
                time.sleep(0.02)  # the CPUs belong to the hostile ones
            for thread in threads:
                thread.join()
            assert not faults, faults
            sizes.append(size_of_host(pool))
        assert good_session(pool) == alone
        assert pool.stats()["live"] == 0
    print(f"{SESSIONS} sessions, {num_good} good beside them: {seen}; (RSS, fds): {sizes}")
    assert seen.total() == SESSIONS * 4
    assert seen[Outcome.PROTOCOL_VIOLATION] > SESSIONS
    assert num_good > 20
    (bytes_before, fds_before), (bytes_after, fds_after) = sizes
    assert abs(fds_after - fds_before) <= 4
    assert bytes_after - bytes_before < 4 << 20, sizes

"""Pools to attack, and the look at host and siblings that every attack is played between.

The looks are cheap (about two milliseconds), so that hundreds of attacks stay affordable: one pool
per set of limits for the whole run, a sibling that is in mid-episode all the time.
"""

import gc
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from spade_async.sandbox import SandboxPolicy, SyncPool, SyncSession
from spade_async.types import Reply
from tests.attacks.case import Case

MARK = "spade-attack-7c41"
"""Part of every name an attack tries to leave behind."""
MARK_KEY = 0x5BADE411
"""Its key for System V objects."""
SHARED_FOLDERS = ("/tmp", "/dev/shm", "/var/tmp", "/run/lock", "/dev/mqueue", "/")
PATIENCE_S = 10.0
MOST_GROWTH_BYTES = 48 << 20
FEW_DESCRIPTORS = 16
"""What other pools may have open for a moment; a leak per attack would soon be more."""

SIBLING = """
class SiblingEnv:
    def reset(self, seed=None):
        self.rng, self.log = random.Random(seed), []
        return f"sibling {self.rng.random()} {random.random()}", {"seed": seed}
    def step(self, action):
        self.log.append(action)
        text = f"{self.rng.random()} {random.random()} {len(self.log)} {hash(tuple(self.log))}"
        return text, self.rng.random(), False, False, {}
    def hint(self):
        return f"{sum(map(len, self.log))} {self.rng.random()}"
"""
SEED = 20_260_101
STEPS = 500


PROFILES = {"plain": "compute", "ctypes": "compute", "fork": "compute"}
"""Profiles of the arenas whose name is not that of a profile."""


def policy_for(name: str) -> SandboxPolicy:
    """Limits of the arena of this name."""
    return SandboxPolicy(
        num_workers=8, spares=2, wall_s_per_call=0.8, cpu_s_per_call=0.3, load_wall_s=1.0,
        memory_bytes=64 << 20, reply_bytes=64 << 10, branches=8,
        imports=() if name == "plain" else ("ctypes",), profiles=(PROFILES.get(name, name),),
    )  # fmt: skip


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    """Whether something comes true in time."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.004)
    return True


def descendants(pid: int) -> dict[int, str]:
    """Processes below a process, with their state and number of threads; zombies included."""
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        parent = todo.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            if parent != pid:
                status = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
                found[parent] = f"{'Z' if status[0] == 'Z' else ''}{len(tasks)}"
            for task in tasks:
                text = Path(f"/proc/{parent}/task/{task}/children").read_text()
                todo.extend(int(word) for word in text.split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def shared_memory_objects() -> list[str]:
    """System V objects with the key of the attacks."""
    lines: list[str] = []
    for kind in ("shm", "sem", "msg"):
        path = Path("/proc/sysvipc", kind)
        if path.exists():
            lines += [x for x in path.read_text().splitlines() if str(MARK_KEY) in x.split()[:1]]
    return lines


def left_in_folders() -> list[str]:
    """Files with the mark of the attacks in folders that everyone may write."""
    found = []
    for folder in SHARED_FOLDERS:
        if os.path.isdir(folder):
            found += [f"{folder}/{name}" for name in os.listdir(folder) if MARK in name]
    return found


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Canary:
    """Files of the host that attacks go for, and their state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / f"{MARK}-secret"
        self.secret.write_text("canary: top secret")
        self.secret.chmod(0o644)
        self.written = folder / f"{MARK}-written"
        self.written.write_text("canary")
        self.written.chmod(0o666)
        folder.chmod(0o777)
        self.before = self.look()

    def look(self) -> list[object]:
        """Names, contents, times, modes and owners."""
        facts: list[object] = [self.folder.stat().st_mode]
        for path in sorted(self.folder.iterdir()):
            status = path.lstat()
            facts.append(
                (path.name, path.read_bytes(), status.st_mtime_ns, status.st_mode, status.st_uid,
                 status.st_gid, status.st_nlink)
            )  # fmt: skip
        return facts


class Arena:
    """One pool with a sibling in mid-episode, and the state of the host before the attacks."""

    def __init__(self, policy: SandboxPolicy, canary: Canary) -> None:
        self.canary, self.policy = canary, policy
        self._stack = ExitStack()
        before = set(descendants(os.getpid()))
        self.pool = self._stack.enter_context(SyncPool(policy))
        [self.stub] = [int(pid) for pid in self._children() if int(pid) not in before]
        self.expected = self._transcript()
        self.sibling = self._stack.enter_context(self.pool.session(SIBLING, SEED))
        self.at = 0
        assert self.sibling.reset().observation == self.expected[0]
        self.processes = self._settled()
        self.descriptors = len(os.listdir("/proc/self/fd"))
        self.mounts = Path("/proc/self/mountinfo").read_text()
        gc.collect()
        self.resident = resident_bytes()

    def close(self) -> None:
        """End the pool; no process of it may be left."""
        mine = {self.stub, *descendants(self.stub)}
        self._stack.close()
        assert eventually(lambda: not mine & set(descendants(os.getpid())))

    @staticmethod
    def _children() -> list[str]:
        tasks = Path("/proc/self/task").iterdir()
        return [pid for task in tasks for pid in (task / "children").read_text().split()]

    def _transcript(self) -> list[str]:
        """What the sibling says when nobody attacks."""
        with self.pool.session(SIBLING, SEED) as session:
            texts = [session.reset().observation]
            for number in range(STEPS):
                reply = session.step(f"move {number}")
                texts.append(f"{reply.observation} {reply.reward} {reply.detail}")
        return texts

    def _is_full(self) -> bool:
        return self.pool.stats()["spare"] >= self.policy.spares

    def _states(self) -> list[str]:
        """States of the pool's processes; spares above the wanted number are left out."""
        return sorted(descendants(self.stub).values())[self._surplus() :]

    def _surplus(self) -> int:
        """Spares beyond the wanted number: those that became free at the same time as others."""
        return max(0, int(self.pool.stats()["spare"]) - self.policy.spares)

    def _settled(self) -> list[str]:
        """States of the pool's processes once three looks agree."""
        looks: list[list[str]] = []
        for _ in range(500):
            looks.append(self._states())
            if self._is_full() and looks[-3:] == [looks[-1]] * 3:
                return looks[-1]
            time.sleep(0.02)
        raise AssertionError(f"the pool does not come to rest: {looks[-3:]}")

    def check(self) -> None:
        """Assert that host and sibling are as they would be without any attack."""
        if self.at == STEPS:
            self.sibling.close()
            self.sibling = self._stack.enter_context(self.pool.session(SIBLING, SEED))
            assert self.sibling.reset().observation == self.expected[0]
            self.at = 0
        number, self.at = self.at, self.at + 1
        reply = self.sibling.step(f"move {number}")
        said = f"{reply.observation} {reply.reward} {reply.detail}"
        assert said == self.expected[number + 1], "the sibling's episode was changed"
        assert self.canary.look() == self.canary.before, "a file of the host was changed"
        assert left_in_folders() == []
        assert shared_memory_objects() == []

    def check_at_rest(self) -> None:
        """The same, and that nothing of the attack runs on; waits until that is so."""
        self.check()

        def rests() -> bool:
            return self._is_full() and self._states() == self.processes

        rested = eventually(rests)
        assert rested, (self.processes, descendants(self.stub), self.pool.stats())

        def descriptors() -> int:
            return len(os.listdir("/proc/self/fd")) - 4 * self._surplus()

        most = self.descriptors + FEW_DESCRIPTORS
        assert eventually(lambda: descriptors() <= most), (descriptors(), most, self.pool.stats())
        assert eventually(lambda: Path("/proc/self/mountinfo").read_text() == self.mounts)
        assert resident_bytes() - self.resident < MOST_GROWTH_BYTES, "the host's memory grew"

    def fresh(self) -> None:
        """A new episode on a new worker is what it was before the attacks."""
        with self.pool.session(SIBLING, SEED) as session:
            reply = session.reset()
            assert reply.observation == self.expected[0], (session.loaded, reply)
            reply = session.step("move 0")
            assert f"{reply.observation} {reply.reward} {reply.detail}" == self.expected[1]

    def session(self, source: str, seed: int = 1) -> SyncSession:
        """A session for attacks that need more than one step."""
        return self.pool.session(source, seed)

    def play(self, case: Case) -> Reply:
        """Run a case in a worker of its own between two looks."""
        self.check()
        with self.session(case.source()) as session:
            reply = session.loaded
            if reply.ok:
                reply = session.reset()
            if reply.ok:
                reply = session.step(str(self.canary.secret))
            self.check()
            if case.ends:
                assert session.step("again") == reply, "a dead worker says the same again"
        case.check(reply)
        self.fresh()
        self.check_at_rest()
        return reply


class Arenas:
    """The arenas of a run by name, opened at first use."""

    def __init__(self, canary: Canary) -> None:
        self.canary = canary
        self.open: dict[str, Arena] = {}
        self.outcomes: dict[str, str] = {}

    def get(self, name: str) -> Arena:
        """The arena with the limits of this name."""
        if name not in self.open:
            before = len(os.listdir("/proc/self/fd"))
            self.open[name] = Arena(policy_for(name), self.canary)
            more = len(os.listdir("/proc/self/fd")) - before
            for arena in self.open.values():
                arena.descriptors += more if arena is not self.open[name] else 0
        return self.open[name]

    def play(self, case: Case) -> Reply:
        """Run a case in its arena, and write its outcome down."""
        reply = self.get(case.on).play(case)
        self.outcomes[case.name] = reply.outcome.value
        return reply

    def close(self) -> None:
        """End all pools."""
        for arena in self.open.values():
            arena.close()

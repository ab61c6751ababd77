"""Whole runs with real processes: a tiny model, small settings, and what must hold at every end.

The test process is made the subreaper of everything it starts, so whatever outlives a run, however
it died and whoever its parent was, becomes our child and is seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest

from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.errors import LedgerError
from spade_async.ledger import LedgerReader
from spade_async.supervisor.folder import read_info
from spade_async.supervisor.processes import descendants, facts
from spade_async.telemetry.status import RunStatus, read_status
from spade_async.weights.folder import weights_folder

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "nano.toml"
SCRIPTED_CONFIG = ROOT / "configs" / "scripted.toml"
START_LIMIT_S = 240.0
"""Until a run has done its next step; generous, for a busy machine."""
END_LIMIT_S = 10.0
"""Promised: from a death to the end of everything."""
_PR_SET_CHILD_SUBREAPER = 36

SMALL = {
    "agent.groups_per_step": 6,
    "agent.seeds_per_environment": 4,
    "designer.group_size": 4,
    "designer.groups_per_step": 1,
    "engine.slots": 32,
    "eval.every": 2,
    "eval.instances_per_level": 4,
    "generator.concurrent_tasks": 32,
    "regret.leak_seeds": 2,
    "sandbox.spares": 2,
    "sandbox.workers": 4,
    "train.steps": 3,
}
"""Settings with which a learner step takes about half a second of one core."""


def shared_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder of the whole session, the same one in all its worker processes."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each worker's own base lies in that of the session
    folder = base / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def nano_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A nano model after a few warm-start steps: about half of its designs are valid."""
    # Its maker holds a lock; whoever comes later waits and finds the model in the cache.
    cache = shared_folder(tmp_path_factory, "nano-cache")
    done = subprocess.run(
        [sys.executable, "-m", "spade_async.nano", "--steps", "110", "--programs", "8",
         "--answers", "2"],
        cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def line(self) -> str:
        """The one line on stderr."""
        (line,) = self.err.splitlines()
        assert "Traceback" not in self.out
        return line


def spade(*arguments: str | Path, timeout_s: float = 60.0, **options: Any) -> Ended:
    """One command of the command line, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "spade_async", *map(str, arguments)],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
        check=False, **options,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def sets(values: dict[str, Any]) -> list[str]:
    """`--set` arguments."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


class WholeRun:
    """One run folder, started and resumed as often as a test likes."""

    def __init__(self, root: Path, model: Path | str | None, **values: Any) -> None:
        """`values` are settings over `SMALL`, "__" for a dot: train__steps=8.

        Without a model it is a scripted run, and they are settings over `SCRIPTED_CONFIG`.
        """
        self.root = root
        self.folder = RunFolder(root)
        self.config = SCRIPTED_CONFIG if model is None else CONFIG
        self.values = {} if model is None else SMALL | {"model.path": model}
        self.values |= {key.replace("__", "."): value for key, value in values.items()}
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[str] | None = None
        self._before: set[int] = set()
        self._all_killed = False
        self._out = root.parent / f"{root.name}.out"
        self._err = root.parent / f"{root.name}.err"

    @property
    def command(self) -> list[str]:
        """Command line of `train`; resumes when the folder has a run."""
        resume = ["--resume"] if self.folder.config.exists() else []
        return [
            sys.executable, "-m", "spade_async", "train", str(self.config), *sets(self.values),
            "--run-dir", str(self.root), *resume,
        ]  # fmt: skip

    def start(self, *, output_fd: int | None = None) -> None:
        """Start, or resume, in the background; `output_fd` instead of a file takes its stdout."""
        self._all_killed = False
        self._before = {process.pid for process in descendants(os.getpid())}
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, stdin=subprocess.DEVNULL,
                stdout=out if output_fd is None else output_fd, stderr=err, text=True,
                env={**os.environ, **self.environment},
            )  # fmt: skip

    def send(self, signum: signal.Signals) -> None:
        """Signal the supervisor alone."""
        assert self.process is not None
        self.process.send_signal(signum)

    def end(self, limit_s: float) -> Ended:
        """Wait for the end and check that nothing at all is left."""
        assert self.process is not None
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs after {limit_s} s: {self.said()}")
        # Nobody to clean up after a killed supervisor: its parts go by the lifeline.
        self.wait(lambda: not self.living(), END_LIMIT_S if code < 0 else 0.5, "all are dead")
        # After a kill of everything at once nobody is left to remove them: the next start does.
        if code >= 0 or not self._all_killed:
            assert not weights_folder(load_resolved(self.root), self.root).exists()
            assert not self.socket_folder().exists()
        return Ended(code, self._out.read_text(), self._err.read_text())

    def finish(self, limit_s: float = START_LIMIT_S) -> Ended:
        """Start (or resume) and run to the last step."""
        self.start()
        ended = self.end(limit_s)
        assert (ended.code, ended.err) == (0, ""), self.said()
        return ended

    def wait(self, what: Callable[[], bool], limit_s: float, text: str) -> None:
        """Poll until it holds."""
        deadline = time.monotonic() + limit_s
        while not what():
            assert time.monotonic() < deadline, f"not within {limit_s} s: {text}; {self.said()}"
            time.sleep(0.02)

    def wait_steps(self, more: int) -> int:
        """Wait until the ledger has that many more steps; gives the last one."""
        goal = self.num_steps() + more

        def is_there() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.said()
            return self.num_steps() >= goal

        self.wait(is_there, START_LIMIT_S, f"{goal} steps in the ledger")
        return self.num_steps()

    def num_steps(self) -> int:
        """Steps ever committed, abandoned ones included."""
        try:
            return int(self.query("SELECT COUNT(*) FROM batches WHERE state != 'planned'")[0][0])
        except LedgerError:
            return 0

    def query(self, sql: str) -> list[Any]:
        """Rows from the ledger as it is now."""
        with LedgerReader.open(self.folder.ledger) as ledger:
            return [tuple(row) for row in ledger.query(sql)]

    def status(self) -> RunStatus:
        """The last status; a blank one before there is any."""
        return read_status(self.folder.status) or RunStatus(state="none")

    def report(self) -> dict[str, Any]:
        """`report --json` through the command line."""
        ended = spade("report", self.root, "--json")
        assert (ended.code, ended.err) == (0, "")
        figures: dict[str, Any] = json.loads(ended.out)
        return figures

    def info(self) -> dict[str, Any]:
        """run.json of this start."""
        return read_info(self.folder)

    def pid(self, name: str) -> int:
        """Pid of a part of this start."""
        return int(self.info()["processes"][name]["pid"])

    def socket_folder(self) -> Path:
        """Folder of the link's socket of this start; one that never is when none was made."""
        return Path(self.info().get("socket_folder", self.root / "none"))

    def living(self) -> list[int]:
        """Pids of everything that descends from this run and lives, the supervisor left out."""
        assert self.process is not None
        me, alive = os.getpid(), []
        for process in descendants(me):
            if process.pid == self.process.pid or process.pid in self._before:
                continue
            if process.state not in "ZX":
                alive.append(process.pid)
            elif process.parent == me:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
        return alive

    def kill(self, pid: int) -> None:
        """kill -9 of one process, with no warning to anybody."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """kill -9 of the supervisor and of everything below it, in one go."""
        assert self.process is not None
        self._all_killed = True
        for pid in (self.process.pid, *self.living()):
            self.kill(pid)

    def out(self) -> str:
        """What the command has said on stdout so far, as one line."""
        return " ".join(self._out.read_text().split())

    def said(self) -> str:
        """What the run said, for a failed assertion."""
        logs = [log.read_text()[-1500:] for log in sorted(self.folder.logs.glob("*.log"))]
        alive = [f"{pid} {facts(pid)}" for pid in self.living()]
        return "\n".join([self._out.read_text(), self._err.read_text(), *logs, *alive])


@contextlib.contextmanager
def whole_run(root: Path, model: Path | str | None, **values: Any) -> Iterator[WholeRun]:
    """A run whose processes are all gone after the block, whatever the test did."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    run = WholeRun(root, model, **values)
    try:
        yield run
    finally:
        if run.process is not None:
            if run.process.poll() is None or run.living():
                run.kill_all()
                run.process.wait()
            deadline = time.monotonic() + END_LIMIT_S
            while run.living() and time.monotonic() < deadline:
                time.sleep(0.05)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, nano_model: Path) -> tuple[WholeRun, Ended]:
    """A run that nothing disturbed, and what its command said. Change copies of it only."""
    folder = shared_folder(tmp_path_factory, "finished")
    root, said = folder / "run", folder / "ended.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            assert not root.exists(), "another worker could not make it: see there"
            with whole_run(root, nano_model) as run:
                said.write_text(json.dumps(astuple(run.finish())))
    return WholeRun(root, nano_model), Ended(*json.loads(said.read_text()))

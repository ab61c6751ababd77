"""What a warm start that is stopped or killed leaves in the cache: nothing, now or at the next."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spade_async.nano import cache
from spade_async.nano.cache import WarmStartSize
from tests.support.whole_run import ROOT, START_LIMIT_S, whole_run

LONG = WarmStartSize(steps=100_000)
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spade-async"


def folders(home: Path) -> list[Path]:
    return sorted(path for path in home.glob("*") if path.is_dir())


def until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@contextmanager
def maker(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A warm start that has begun to write."""
    argv = [sys.executable, "-m", "spade_async.nano", *LONG.arguments()]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(argv, cwd=ROOT, **quiet) as process:  # type: ignore[call-overload]
        try:
            until(lambda: any(list(folder.iterdir()) for folder in folders(home)))
            yield process
        finally:
            process.kill()


def test_a_maker_that_is_asked_to_stop_leaves_nothing(home: Path) -> None:
    with maker(home) as process:
        process.terminate()
        assert process.wait(30.0) == 143
    assert folders(home) == []


def test_what_a_killed_maker_left_goes_at_the_next_start_of_any_key(home: Path) -> None:
    with maker(home) as process:
        left = folders(home)
        cache.sweep()
        assert folders(home) == left, "its maker lives"
        process.kill()
        process.wait()
    assert folders(home) == left

    def other(folder: Path, seed: int, size: WarmStartSize, progress: object) -> None:
        assert folders(home) == [folder]
        (folder / "model.safetensors").write_bytes(b"weights")

    made = cache.make(7, WarmStartSize(2, 2, 4), lambda share, text: None, other)
    assert folders(home) == [made]


def test_a_folder_of_a_living_maker_of_another_key_is_not_touched(home: Path) -> None:
    home.mkdir(parents=True)
    dead, alive = (home / f"nano-{name}.partial-x" for name in ("dead", "alive"))
    whole = home / "nano-whole"
    for folder in (dead, alive, whole):
        folder.mkdir()
        (folder / "part").write_text("half")
    with (home / "nano-alive.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        cache.sweep()
        assert folders(home) == [alive, whole]
    cache.sweep()
    assert folders(home) == [whole]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_ends_in_its_warm_start_leaves_nothing_half_made(
    tmp_path: Path, home: Path, signum: signal.Signals
) -> None:
    with whole_run(tmp_path / "run", "nano") as run:
        run.environment["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]
        run.start()
        until(lambda: any(list(folder.iterdir()) for folder in folders(home)))
        run.send(signum)
        assert run.end(20.0).code == (-9 if signum == signal.SIGKILL else 130)
        until(lambda: folders(home) == [])

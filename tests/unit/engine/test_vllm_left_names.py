"""What killed processes of an engine leave in shared memory is removed, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from spade_async.engine.vllm import left_names
from spade_async.engine.vllm.left_names import SHARED_MEMORY, sweep
from spade_async.weights.living import start_of

HOLDER = """
import multiprocessing, sys, time
from multiprocessing.shared_memory import SharedMemory
from spade_async.engine.vllm import left_names

def child():
    left_names.note()
    left_names.note()
    lock = multiprocessing.get_context("spawn").RLock()
    segment = SharedMemory(create=True, size=64)
    print(lock._semlock.name.lstrip("/"), segment.name.lstrip("/"), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    left_names.begin()
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    print(process.pid, flush=True)
    time.sleep(600)
"""
pytestmark = pytest.mark.skipif(not os.access(SHARED_MEMORY, os.W_OK), reason="no shared memory")


def listed(pid: int) -> list[Path]:
    return list(SHARED_MEMORY.glob(f"spade-async-names-{os.getuid()}-{pid}-*"))


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[Path]]]:
    """A process group that holds an "engine", and the two files that its child made."""
    script = tmp_path / "holder.py"
    script.write_text(HOLDER)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline().split() for _ in range(2)]
    (names,) = (words for words in lines if len(words) == 2)
    made = [SHARED_MEMORY / f"sem.{names[0]}", SHARED_MEMORY / names[1]]
    yield process, made
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    sweep()
    for path in made:
        path.unlink(missing_ok=True)


def kill_whole_group(process: subprocess.Popen[str]) -> None:
    """Python's resource tracker, which would clean up, is in it."""
    makers = [
        int(line.split()[0])
        for path in listed(process.pid)
        for line in path.read_text().splitlines()
    ]
    assert makers
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # The children are init's now.
    deadline = time.monotonic() + 20
    while any(start_of(maker) is not None for maker in makers):
        assert time.monotonic() < deadline, "killed and alive"
        time.sleep(0.01)


def test_what_a_killed_engine_made_is_removed_and_what_others_made_stays(
    holder: tuple[subprocess.Popen[str], list[Path]],
) -> None:
    process, made = holder
    others = multiprocessing.get_context("spawn").Lock()
    other = SHARED_MEMORY / f"sem.{others._semlock.name.lstrip('/')}"  # type: ignore[attr-defined]
    assert not {path.name for path in made} & set(sweep())
    assert all(path.exists() for path in made)  # they live
    kill_whole_group(process)
    assert all(path.exists() for path in made)  # nobody else removes them
    assert {path.name for path in made} <= set(sweep())
    assert not any(path.exists() for path in made)
    assert other.exists()
    assert listed(process.pid) == []
    assert sweep() == []


def test_a_name_that_somebody_uses_again_is_not_removed(
    holder: tuple[subprocess.Popen[str], list[Path]],
) -> None:
    process, (semaphore, segment) = holder
    kill_whole_group(process)
    semaphore.unlink()
    semaphore.write_text("of another")
    assert segment.name in sweep()
    assert semaphore.read_text() == "of another"


def test_a_list_that_is_damaged_or_names_a_place_elsewhere_removes_nothing(
    tmp_path: Path,
) -> None:
    root = tmp_path / "shm"
    root.mkdir()
    elsewhere = tmp_path / "precious"
    elsewhere.write_text("x")
    bad = root / f"spade-async-names-{os.getuid()}-{2**22 + 1}-7"
    for line in (f"1 1 ../precious {elsewhere.stat().st_ino}\n", "no words\n", "1 1 x y\n"):
        bad.write_text(line)
        assert sweep(root) == []
    assert elsewhere.exists()


def test_the_tracker_is_told_what_was_removed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is shared with the dead, and would look for their names when this process ends."""
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(resource_tracker, "unregister", lambda *words: told.append(words))
    listed = tmp_path / "list"
    monkeypatch.setenv(left_names.LIST, str(listed))
    for name in ("sem.mp-a", "psm_b", "sem.mp-gone"):
        (tmp_path / name).touch()
        with listed.open("a") as file:
            file.write(f"{2**22 + 1} 7 {name} {(tmp_path / name).stat().st_ino}\n")
    (tmp_path / "sem.mp-gone").unlink()
    assert left_names.bury(tmp_path) == ["sem.mp-a", "psm_b"]
    assert told == [("/mp-a", "semaphore"), ("/psm_b", "shared_memory")]
    assert list(tmp_path.iterdir()) == [listed]


def test_the_list_of_a_closed_engine_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_tracker, "register", lambda name, kind: None)
    monkeypatch.delenv(left_names.LIST, raising=False)
    left_names.begin(tmp_path)
    left_names.begin(tmp_path)
    (path,) = tmp_path.iterdir()
    assert os.environ[left_names.LIST] == str(path)
    left_names.end(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert left_names.LIST not in os.environ
    assert left_names.bury(tmp_path) == []
    # What the process makes after that is nobody's business.
    resource_tracker.register("/mp-x", "semaphore")
    left_names.begin(tmp_path / "none")

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spade_async.config.schema import Config, WeightsConfig
from spade_async.errors import WeightsError
from spade_async.weights import folder as folders
from spade_async.weights.folder import (
    check_shared_memory,
    is_left_by,
    make_weights_folder,
    remove_weights_folder,
    sweep_stale_folders,
    weights_folder,
)

IN_RUN = Config(weights=WeightsConfig(location="run_folder"))


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "shm"
    root.mkdir()
    monkeypatch.setattr(folders, "SHARED_MEMORY", root)
    return root


def test_every_process_of_a_run_finds_the_same_private_folder(shared: Path, tmp_path: Path) -> None:
    made = make_weights_folder(Config(), tmp_path / "run")
    assert made == weights_folder(Config(), tmp_path / "." / "run")
    assert made != weights_folder(Config(), tmp_path / "other")
    assert made.parent == shared
    assert made.name.startswith("spade-async-")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    remove_weights_folder(made)
    remove_weights_folder(made)
    assert not made.exists()


def test_the_run_folder_can_hold_the_weights(tmp_path: Path) -> None:
    assert make_weights_folder(IN_RUN, tmp_path / "run") == tmp_path / "run" / "weights"


def test_a_folder_that_is_not_ours_is_not_removed(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="not a weights folder"):
        remove_weights_folder(tmp_path)


def test_the_sweep_takes_dead_runs_only(shared: Path, tmp_path: Path) -> None:
    alive = make_weights_folder(Config(), tmp_path / "alive")
    dead = make_weights_folder(Config(), tmp_path / "dead")
    restarting = make_weights_folder(Config(), tmp_path / "restarting")
    in_the_making = shared / f"spade-async-{os.getuid()}-0"
    foreign = shared / "something-else"
    in_the_making.mkdir()
    foreign.mkdir()
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    for made in (dead, restarting):
        owner = json.loads((made / "owner.json").read_text())
        (made / "owner.json").write_text(json.dumps({**owner, "pid": int(gone.stdout)}))
    run = tmp_path / "restarting"
    run.mkdir()
    with (run / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sweep_stale_folders(shared) == [dead]
    assert sorted(shared.iterdir()) == sorted([alive, restarting, in_the_making, foreign])
    assert sweep_stale_folders(shared) == [restarting]


def test_a_folder_that_a_dying_part_still_writes_into_is_removed(shared: Path) -> None:
    folder = shared / f"spade-async-{os.getuid()}-0"
    ends = threading.Event()

    def write() -> None:
        for number in range(300):
            with contextlib.suppress(OSError):
                (folder / f"weights-{number}").write_bytes(b"x" * 100)
            if number == 100:
                ends.set()

    folder.mkdir()
    writer = threading.Thread(target=write)
    writer.start()
    ends.wait(30)
    remove_weights_folder(folder)
    writer.join()
    assert not folder.exists()


def test_whose_a_folder_is_once_its_supervisor_is_gone(shared: Path, tmp_path: Path) -> None:
    folder = make_weights_folder(Config(), tmp_path / "run")
    owner = json.loads((folder / "owner.json").read_text())
    assert is_left_by(folder, os.getpid())
    # A next start has it, and that one lives.
    assert not is_left_by(folder, os.getpid() + 1)
    # The supervisor died before we could ask who it was: its folder is a dead process's.
    for dead in ({"start": "0"}, {"pid": 2**22 + 1}):
        (folder / "owner.json").write_text(json.dumps(owner | dead))
        assert is_left_by(folder, os.getppid())
    (folder / "owner.json").unlink()
    assert is_left_by(folder, os.getppid())


def test_what_a_cut_removal_left_without_an_owner_goes_in_the_end(shared: Path) -> None:
    left = shared / f"spade-async-{os.getuid()}-0"
    left.mkdir()
    (left / "weights").write_bytes(b"x")
    assert sweep_stale_folders(shared) == []  # it may be in the making
    os.utime(left, (0, 0))
    assert sweep_stale_folders(shared) == [left]
    assert not left.exists()


def test_a_reused_pid_does_not_keep_a_dead_run(shared: Path, tmp_path: Path) -> None:
    made = make_weights_folder(Config(), tmp_path / "run")
    owner = json.loads((made / "owner.json").read_text())
    (made / "owner.json").write_text(json.dumps({**owner, "start": "1"}))
    assert sweep_stale_folders(shared) == [made]


def test_shared_memory_that_cannot_be_used_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    for needed, root, why in (
        (1, tmp_path / "none", "missing"),
        (1 << 60, tmp_path, "MiB free"),
    ):
        with pytest.raises(WeightsError, match=why) as caught:
            check_shared_memory(needed, root)
        assert 'weights.location="run_folder"' in str(caught.value)
        assert "\n" not in str(caught.value)
    check_shared_memory(1, tmp_path)


def test_the_folder_functions_need_no_torch() -> None:
    code = (
        "import sys, spade_async.weights.folder, spade_async.weights.store, "
        "spade_async.engine.tokens, spade_async.engine.scripted; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

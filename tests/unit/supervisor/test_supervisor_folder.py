from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spade_async.config.load import load_resolved
from spade_async.config.run import RunConfig
from spade_async.config.schema import Config, TrainConfig
from spade_async.errors import RunFolderError
from spade_async.supervisor import folder as run_folders
from spade_async.supervisor.folder import holder, take


def test_new_folder_is_made_locked_and_described(tmp_path: Path) -> None:
    root = tmp_path / "a" / "run"
    locked = take(root, Config(), resume=False)
    assert locked.folder.config.exists()
    assert holder(locked.folder) == os.getpid()
    locked.close()
    assert holder(locked.folder) is None


def test_folder_in_use_is_refused_with_the_pid(tmp_path: Path) -> None:
    locked = take(tmp_path / "run", Config(), resume=False)
    for resume in (False, True):
        with pytest.raises(RunFolderError, match=f"in use by a live run .pid {os.getpid()}."):
            take(tmp_path / "run", Config(), resume=resume)
    locked.close()


def test_non_empty_folder_needs_resume(tmp_path: Path) -> None:
    take(tmp_path / "run", Config(), resume=False).close()
    (tmp_path / "run" / "ledger.sqlite").touch()
    with pytest.raises(RunFolderError, match="add --resume"):
        take(tmp_path / "run", Config(), resume=False)


@pytest.mark.parametrize("other", ["notes.txt", "checkpoints", "ledger.sqlite", "alerts.jsonl"])
def test_a_start_that_never_began_stands_in_nobodys_way(tmp_path: Path, other: str) -> None:
    root = tmp_path / "run"
    folder = take(root, Config(), resume=False)
    for path in (folder.folder.info, folder.folder.status, root / "resources.json"):
        path.write_text('{"of": "a start that was refused"}')
    folder.close()
    mended = Config(train=TrainConfig(steps=7))
    take(root, mended, resume=False).close()
    assert {path.name for path in root.iterdir()} == {"config.json", "lock", "logs"}
    assert load_resolved(root) == mended
    (root / other).mkdir()
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        take(root, Config(), resume=False)
    assert load_resolved(root) == mended


def test_nothing_to_resume_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="nothing to resume"):
        take(tmp_path / "run", Config(), resume=True)
    # The refused attempt leaves the folder usable.
    take(tmp_path / "run", Config(), resume=False).close()


def test_other_configuration_is_refused_naming_the_keys_and_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "run"
    take(root, Config(), resume=False).close()
    before = (root / "config.json").read_bytes()
    with pytest.raises(RunFolderError, match=r"run\.seed: 17 -> 5"):
        take(root, Config(run=RunConfig(seed=5)), resume=True)
    assert (root / "config.json").read_bytes() == before


def test_more_steps_are_the_same_run(tmp_path: Path) -> None:
    root = tmp_path / "run"
    take(root, Config(), resume=False).close()
    take(root, Config(train=TrainConfig(steps=999)), resume=True).close()
    assert '"steps": 999' in (root / "config.json").read_text()


def test_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="choose another --run-dir"):
        take(tmp_path / "file" / "run", Config(), resume=False)


def test_no_permission_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As the kernel would answer; root, as which the tests may run, is never refused.
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunFolderError, match="Permission denied; choose a --run-dir you may write"):
        take(tmp_path / "closed", Config(), resume=False)


def test_full_disk_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folders, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(RunFolderError, match="MiB free"):
        take(tmp_path / "run", Config(), resume=False)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_refused_start_leaves_no_folder_that_it_made(tmp_path: Path) -> None:
    locked = take(tmp_path / "a" / "run", Config(), resume=False)
    locked.folder.info.write_text('{"processes": {}}')
    locked.folder.status.write_text("{}")
    (locked.folder.logs / "model.log").write_text("made")
    locked.forget()
    locked.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_is_left_empty_by_a_refused_start(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    locked = take(root, Config(), resume=False)
    locked.forget()
    locked.close()
    assert list(root.iterdir()) == []


def test_what_has_begun_or_was_resumed_is_never_forgotten(tmp_path: Path) -> None:
    root = tmp_path / "run"
    begun = take(root, Config(), resume=False)
    begun.folder.info.write_text('{"processes": {"learner": {"pid": 1}}}')
    begun.forget()
    begun.close()
    assert begun.folder.config.exists()
    begun.folder.info.unlink()
    resumed = take(root, Config(), resume=True)
    resumed.forget()
    resumed.close()
    assert begun.folder.config.exists()


def test_a_folder_that_cannot_be_taken_is_not_made(tmp_path: Path) -> None:
    for resume in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_folders, "MIN_FREE_BYTES", 1 << 62)
            with pytest.raises(RunFolderError, match=r"nothing to resume|MiB free"):
                take(tmp_path / "a" / "run", Config(), resume=resume)
    assert list(tmp_path.iterdir()) == []

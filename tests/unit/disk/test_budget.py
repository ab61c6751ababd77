"""What goes first when a run folder is above its budget, and what never goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.config.size import in_units
from spade_async.disk.budget import keep_budget
from spade_async.disk.inventory import LOG_KEPT_BYTES, InUse, Rank, candidates, used_bytes
from spade_async.disk.manifest import write_manifest

KB = 1000
IN_USE = InUse(checkpoint=(1, 9), weights_from=(1, 8), events="events.out.tfevents.3")


def write(path: Path, size: int, age: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (1000 + age, 1000 + age))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run folder with something of every kind; checkpoints of 100 kB."""
    found = RunFolder(tmp_path)
    write(found.ledger, 50 * KB)
    write(found.config, KB)
    write(found.alerts, KB)
    for name in ("branch-0-step-6", "branch-0-step-9", "branch-1-step-7", "branch-1-step-8",
                 "branch-1-step-9", "branch-1-step-10", "damaged-branch-0-step-5"):  # fmt: skip
        write(found.checkpoints / name / "model.safetensors.bin", 100 * KB)
        write_manifest(found.checkpoints / name)
    for version in ("1.6", "1.7", "1.8", "1.9"):
        write(tmp_path / "weights" / f"weights-{version}.safetensors", 30 * KB)
    for step in (2, 5):
        write(found.quarantine / f"batch-0-{step}.npz", 20 * KB)
        write(found.quarantine / f"batch-0-{step}.json", KB)
        write(found.quarantine / f"batch-0-{step}.state" / "model", 100 * KB)
    write(found.logs / "gen-0.log", 10 * KB)
    write(found.logs / "learner.log", LOG_KEPT_BYTES + 500 * KB)
    for number in (1, 2, 3):
        write(found.tensorboard / f"events.out.tfevents.{number}", 40 * KB, age=number)
    return found


ORDER = [
    ["weights-1.6.safetensors"],
    ["weights-1.7.safetensors"],
    ["branch-0-step-9"],  # of steps that were undone
    ["damaged-branch-0-step-5"],
    ["batch-0-2.json", "batch-0-2.npz", "batch-0-2.state"],
    ["branch-0-step-6"],
    ["branch-1-step-7"],
    ["learner.log"],
    ["events.out.tfevents.1"],
    ["events.out.tfevents.2"],
    ["batch-0-5.json", "batch-0-5.npz", "batch-0-5.state"],
    ["branch-1-step-8"],
]


def test_the_order_is_the_one_that_is_documented(folder: RunFolder) -> None:
    found = [[path.name for path in c.paths] for c in candidates(folder, IN_USE)]
    assert found == ORDER


def test_nothing_in_use_is_a_candidate_and_what_is_not_known_stays(folder: RunFolder) -> None:
    unknown = InUse(checkpoint=None, weights_from=None, events="events.out.tfevents.3")
    ranks = {c.rank for c in candidates(folder, unknown)}
    assert not ranks & {Rank.OLD_WEIGHTS, Rank.OLD_CHECKPOINT, Rank.SECOND_CHECKPOINT}


@pytest.mark.parametrize("num_removed", range(1, len(ORDER) + 1))
def test_no_more_is_removed_than_the_budget_asks_for(folder: RunFolder, num_removed: int) -> None:
    # The budget at which exactly so many have to go: what is left, and what the next step writes.
    reserve = 1.25 * (used_bytes(folder.checkpoints / "branch-1-step-10") + 30 * KB)
    everything = used_bytes(folder.root)
    freed = 0
    for names in ORDER[:num_removed]:
        for name in names:
            (path,) = folder.root.rglob(name)
            size = used_bytes(path) if path.is_dir() else path.stat().st_size
            freed += size - LOG_KEPT_BYTES if name.endswith(".log") else size
    kept = keep_budget(folder, int((everything - freed + reserve) / 0.99) + 10, IN_USE)
    assert list(kept.removed) == [names[0] for names in ORDER[:num_removed]]
    assert kept.over is None


def test_a_folder_within_its_budget_is_left_alone(folder: RunFolder) -> None:
    assert keep_budget(folder, 1 << 30, IN_USE).removed == ()


def test_what_must_stay_stays_and_the_largest_parts_are_named(folder: RunFolder) -> None:
    kept = keep_budget(folder, 1000 * KB, IN_USE)
    assert kept.over is not None
    assert "logs 1.06 MB, checkpoints 200 KB" in kept.over
    assert "more than run.disk_budget=1 MB" in kept.over
    left = {str(path.relative_to(folder.root)) for path in folder.root.rglob("*") if path.is_file()}
    assert {
        "ledger.sqlite", "config.json", "alerts.jsonl", "logs/gen-0.log", "logs/learner.log",
        "checkpoints/branch-1-step-9/model.safetensors.bin",
        "checkpoints/branch-1-step-10/model.safetensors.bin",
        "weights/weights-1.8.safetensors", "weights/weights-1.9.safetensors",
        "tensorboard/events.out.tfevents.3",
    } <= left  # fmt: skip
    assert not [path for path in folder.root.rglob(".old-*")]


def test_the_second_newest_checkpoint_stays_when_the_newest_is_damaged(folder: RunFolder) -> None:
    target = folder.checkpoints / "branch-1-step-9" / "model.safetensors.bin"
    target.write_bytes(b"y" * 100 * KB)
    keep_budget(folder, 1000 * KB, IN_USE)
    assert (folder.checkpoints / "branch-1-step-8").is_dir()


def test_a_log_keeps_its_end_and_goes_on_for_who_appends(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.logs.mkdir()
    log = folder.logs / "gen-0.log"
    with log.open("ab") as appending:
        for number in range(40_000):
            appending.write(f"line {number:06d} {'x' * 30}\n".encode())
        appending.flush()
        assert keep_budget(folder, 1_100_000, IN_USE).removed == ("gen-0.log",)
        appending.write(b"after\n")
    lines = log.read_text().splitlines()
    assert log.stat().st_size <= LOG_KEPT_BYTES + 6
    assert lines[0].startswith("line 0")
    assert lines[-2:] == [f"line 039999 {'x' * 30}", "after"]


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "a", 100)
    os.link(tmp_path / "a", tmp_path / "b")
    assert used_bytes(tmp_path) == 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2GB", 2 * 10**9), ("1.5 gb", 15 * 10**8), ("64MiB", 64 << 20), (5_000_000, 5_000_000)],
)
def test_sizes_are_read_with_units(text: object, expected: int) -> None:
    assert Config.model_validate({"run": {"disk_budget": text}}).run.disk_budget == expected


@pytest.mark.parametrize("text", ["2XB", "GB", "-3GB", "10", True, 0.5])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate({"run": {"disk_budget": text}})


def test_sizes_in_sentences() -> None:
    assert [in_units(n) for n in (999, 1500, 2_500_000, 1_230_000_000, 15 * 10**11)] == [
        "999 B", "1.5 KB", "2.5 MB", "1.23 GB", "1.5 TB",
    ]  # fmt: skip

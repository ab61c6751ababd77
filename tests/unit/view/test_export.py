from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from spade_async.commands.export import export
from spade_async.config.run import RunConfig
from spade_async.config.schema import Config
from spade_async.environment.contract import MAX_SOURCE_BYTES, environment_id
from spade_async.environment.pool_folder import read_pool
from spade_async.errors import RunFolderError
from spade_async.types import RegretClass
from spade_async.view import pool
from spade_async.view.pool import Choice
from spade_async.view.program_names import reference_name
from tests.support.viewed_run import BOTH_LOSE, BOTH_WIN, HINT_HELPS, RunMaker, program


@pytest.fixture
def maker(tmp_path: Path) -> RunMaker:
    return RunMaker(tmp_path / "run")


def exported(run: Path, folder: Path, *, replaces: bool = False, **choice: object) -> str:
    console = Console(file=io.StringIO(), width=80)
    export(
        run, folder, Choice(**choice), licence="Apache-2.0", replaces=replaces, as_json=False,
        console=console,
    )  # fmt: skip
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # a StringIO


def index(folder: Path) -> list[dict[str, object]]:
    return json.loads((folder / "pool.json").read_text())


def test_the_best_come_first_with_their_digest_and_origin(maker, tmp_path):
    weak = maker.environment([HINT_HELPS, BOTH_LOSE, BOTH_LOSE, BOTH_WIN])
    strong = maker.environment([HINT_HELPS, HINT_HELPS, HINT_HELPS, BOTH_WIN])
    mastered = maker.environment([BOTH_WIN] * 4, RegretClass.MASTERED, hint="say 1")
    out = tmp_path / "pool"
    said = exported(maker.close(), out)
    entries = index(out)
    assert [e["environment_id"] for e in entries] == [strong, weak, mastered]
    assert sorted(p.name for p in out.glob("*.py")) == [e["file"] for e in entries]
    for entry in entries:
        digest = hashlib.sha256((out / str(entry["file"])).read_bytes()).hexdigest()
        assert entry["sha256"] == digest
        assert digest.startswith(str(entry["environment_id"]))
    first = entries[0]
    assert (first["regret"], first["mean_no_hint"], first["mean_with_hint"]) == (0.75, 0.25, 1.0)
    assert first["regret_se"] == pytest.approx(0.25)
    assert (first["skill"], first["document"], first["run"], first["licence"], first["class"]) == (
        "Arithmetic", "doc-1", "run", "Apache-2.0", "frontier",
    )  # fmt: skip
    assert entries[2]["hint"] == "say 1"
    assert said.startswith("3 environments in ")


def test_filters_say_what_they_left_out(maker, tmp_path):
    maker.environment([HINT_HELPS, BOTH_LOSE, BOTH_LOSE, BOTH_WIN])
    maker.environment([HINT_HELPS, HINT_HELPS, HINT_HELPS, BOTH_WIN])
    maker.environment([HINT_HELPS] * 4, source=program(7, "# another shape\nx = 1\n"))
    maker.environment([BOTH_WIN] * 4, RegretClass.MASTERED)
    run = maker.close()
    # Numbers and strings are no part of the shape: the first two share theirs.
    said = exported(run, tmp_path / "a", classes=("frontier",), one_per_skeleton=True)
    assert len(index(tmp_path / "a")) == 2
    assert "left out: 1 by --class, 1 by --one-per-skeleton" in said
    exported(run, tmp_path / "b", min_regret=0.5, limit=1)
    assert [e["regret"] for e in index(tmp_path / "b")] == [1.0]
    with pytest.raises(RunFolderError, match=r"nothing to export \(4 by --min-regret\)"):
        exported(run, tmp_path / "c", min_regret=2.0)
    with pytest.raises(RunFolderError, match="--class hard: there is frontier"):
        exported(run, tmp_path / "c", classes=("hard",))
    assert not (tmp_path / "c").exists()


def test_a_folder_that_exists_is_refused_and_only_a_pool_is_replaced(maker, tmp_path):
    maker.environment([HINT_HELPS, BOTH_WIN])
    run, out, mine = maker.close(), tmp_path / "pool", tmp_path / "mine"
    exported(run, out)
    with pytest.raises(RunFolderError, match="exists already"):
        exported(run, out)
    (out / "left.py").write_text("")
    exported(run, out, replaces=True)
    assert not (out / "left.py").exists()
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(RunFolderError, match="is not an exported pool"):
        exported(run, mine, replaces=True)
    assert (mine / "thesis.txt").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "pool", "run"]


def test_a_pool_that_cannot_be_finished_leaves_nothing(maker, tmp_path, monkeypatch):
    maker.environment([HINT_HELPS, BOTH_WIN])
    run = maker.close()
    exported(run, tmp_path / "pool")
    before = (tmp_path / "pool" / "pool.json").read_bytes()

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pool, "_write", full)
    with pytest.raises(RunFolderError, match="No space left on device; choose another --out"):
        exported(run, tmp_path / "pool", replaces=True)
    assert (tmp_path / "pool" / "pool.json").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pool", "run"]


def test_bytes_are_kept_as_they_are_and_a_damaged_source_is_left_out(maker, tmp_path):
    odd = program(1, "# naïve \r\n# \u2028 end")
    name = maker.environment([HINT_HELPS, BOTH_WIN], source=odd)
    other = maker.environment([HINT_HELPS, BOTH_WIN])
    with maker.ledger.transaction():
        maker.ledger._db.execute(
            "UPDATE environments SET source = 'x' WHERE environment_id = ?", (other,)
        )
    said = exported(maker.close(), tmp_path / "pool")
    (entry,) = index(tmp_path / "pool")
    text = (tmp_path / "pool" / str(entry["file"])).read_bytes().decode()
    assert environment_id(text) == name == environment_id(odd)
    assert "left out: 1 by source is not what its id says" in said


@pytest.mark.parametrize("odd", ["# " + "x" * MAX_SOURCE_BYTES, "# \u2028" * 30_000], ids=len)
def test_what_no_pool_takes_is_left_out_and_counted(maker, tmp_path, odd):
    maker.environment([HINT_HELPS, BOTH_WIN], source=program(1, odd + "\n"))
    maker.environment([HINT_HELPS, BOTH_WIN])
    said = exported(maker.close(), tmp_path / "pool")
    assert len(index(tmp_path / "pool")) == 1
    assert "left out: 1 by no program that a pool takes" in said
    found = read_pool(tmp_path / "pool")
    assert (len(found.programs), found.skipped) == (1, ())


def test_the_reference_names_of_programs_are_its_own():
    # Appendix A3 of the reference's vectors.
    assert reference_name(3, 2, "Logical Deduction") == "game_00003_002_logical_deduction.py"
    assert reference_name(0, 0, "Multi-Step_Workflows") == "game_00000_000_multi_step_workflows.py"
    assert reference_name(1, 0, "../../etc/passwd\n") == "game_00001_000_etc_passwd.py"
    assert reference_name(1, 0, "///") == "game_00001_000_unknown.py"


def test_a_run_in_compatibility_mode_exports_under_the_names_of_the_reference(tmp_path):
    maker = RunMaker(tmp_path / "run", Config(run=RunConfig(compat="reference")))
    maker.environment([HINT_HELPS, BOTH_LOSE, BOTH_LOSE, BOTH_WIN])
    maker.environment([HINT_HELPS, HINT_HELPS, HINT_HELPS, BOTH_WIN])
    out = tmp_path / "pool"
    exported(maker.close(), out)
    entries = index(out)
    assert [e["regret"] for e in entries] == [0.75, 0.25]
    steps = [entry["step"] for entry in entries]
    numbers = [0, 1 if steps[0] == steps[1] else 0]
    assert [e["file"] for e in entries] == [
        f"game_{step:05d}_{number:03d}_arithmetic.py"
        for step, number in zip(steps, numbers, strict=True)
    ]
    assert sorted(p.name for p in out.glob("*.py")) == sorted(str(e["file"]) for e in entries)
    read = read_pool(out)
    assert [program.file for program in read.programs] == sorted(str(e["file"]) for e in entries)

"""A folder of programs as a pool: what is used, what is skipped, by name and with a reason."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from spade_async.coordinator.seed_pool import SeedPool
from spade_async.designer import games
from spade_async.environment.contract import MAX_SOURCE_BYTES
from spade_async.environment.pool_folder import read_pool
from spade_async.errors import ConfigError
from spade_async.nano import domain as nano


def program(number: int) -> str:
    return f"class Game{number}Env:\n    pass\n"


def write(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"game_{number:04d}.py").write_text(program(number))


def test_one_bad_program_among_a_thousand_is_skipped_and_named(tmp_path: Path) -> None:
    write(tmp_path, 1000)
    (tmp_path / "game_0417.py").write_bytes(b"class Game\xffEnv: pass\n")
    pool = read_pool(tmp_path)
    assert len(pool.programs) == 999
    assert pool.skipped == (("game_0417.py", "is not UTF-8 text (byte 10)"),)
    assert pool.summary() == (
        f"{tmp_path}: 999 program(s), 1 skipped: game_0417.py: is not UTF-8 text (byte 10)"
    )
    assert [p.file for p in pool.programs] == sorted(p.file for p in pool.programs)


def test_each_kind_of_bad_file_has_its_reason(tmp_path: Path) -> None:
    write(tmp_path, 2)
    (tmp_path / "a_empty.py").write_text(" \n")
    (tmp_path / "b_long.py").write_text("#" * (MAX_SOURCE_BYTES + 1))
    (tmp_path / "c_binary.py").write_bytes(b"\x00\x01")
    (tmp_path / "d_folder.py").mkdir()
    (tmp_path / "e_twin.py").write_text(program(7))
    (tmp_path / "f_twin.py").write_text(program(7))
    os.mkfifo(tmp_path / "g_pipe.py")
    (tmp_path / "h_nowhere.py").symlink_to(tmp_path / "gone")
    (tmp_path / "notes.txt").write_text("not a program")
    pool = read_pool(tmp_path)
    assert dict(pool.skipped) == {
        "a_empty.py": "the program is empty",
        "b_long.py": f"is longer than {MAX_SOURCE_BYTES} bytes",
        "c_binary.py": "is not text: it holds a NUL",
        "d_folder.py": "is not a regular file",
        "f_twin.py": "the same program as e_twin.py",
        "g_pipe.py": "is not a regular file",
        "h_nowhere.py": "cannot be read: No such file or directory",
    }
    assert [p.file for p in pool.programs] == ["e_twin.py", "game_0000.py", "game_0001.py"]
    assert "and 2 more" in pool.summary()


def test_line_ends_and_bytes_are_kept(tmp_path: Path) -> None:
    data = "class AEnv:\r\n    x = 'é'\n".encode()
    (tmp_path / "a.py").write_bytes(data)
    (found,) = read_pool(tmp_path).programs
    assert found.source.encode() == data
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    assert found.sha256.startswith(found.environment_id)


def test_the_index_is_read_and_checked(tmp_path: Path) -> None:
    write(tmp_path, 3)
    digest = hashlib.sha256(program(0).encode()).hexdigest()
    entry = {
        "file": "game_0000.py", "sha256": digest, "skill": "Logical Deduction", "regret": 0.25,
        "mean_no_hint": 0, "mean_with_hint": float("nan"), "hint": "halve it", "hint_mode": "self",
        "licence": None, "run": "nano-1", "something": {"new": 1},
    }  # fmt: skip
    changed = {"file": "game_0001.py", "sha256": "0" * 64}
    index = [entry, changed, {"file": "lost.py"}, {"no": "file"}, 7]
    (tmp_path / "pool.json").write_text(json.dumps(index))
    pool = read_pool(tmp_path)
    first, last = pool.programs
    assert (first.skill, first.regret, first.mean_no_hint) == ("Logical Deduction", 0.25, 0.0)
    assert (first.mean_with_hint, first.hint, first.hint_mode) == (None, "halve it", "self")
    assert (first.licence, first.run) == (None, "nano-1")
    assert (last.file, last.skill, last.regret) == ("game_0002.py", None, None)
    assert [name for name, _ in pool.skipped] == ["game_0001.py", "lost.py"]
    assert "changed since" in pool.skipped[0][1]
    assert pool.notes == ("2 entries of pool.json name no file and are not used",)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '"x"', "\0", "{}"])
def test_a_damaged_index_costs_what_it_says_and_no_program(tmp_path: Path, text: str) -> None:
    write(tmp_path, 2)
    (tmp_path / "pool.json").write_text(text)
    pool = read_pool(tmp_path)
    assert len(pool.programs) == 2
    (note,) = pool.notes
    assert note.startswith("pool.json is ")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop"])
def test_an_index_that_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    write(tmp_path, 1)
    index = tmp_path / "pool.json"
    if kind == "pipe":
        os.mkfifo(index)
    elif kind == "folder":
        index.mkdir()
    else:
        index.symlink_to("/dev/zero" if kind == "device" else index)
    pool = read_pool(tmp_path)
    assert len(pool.programs) == 1
    (note,) = pool.notes
    assert note.startswith("pool.json ")
    assert "not used" in note


def test_values_of_the_index_that_are_none_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, 1)
    values = f'"regret": {"9" * 400}, "mean_no_hint": Infinity, "mean_with_hint": "1", "skill": 7'
    (tmp_path / "pool.json").write_text(
        f'[{{"file": "game_0000.py", {values}, "hint": "a\\ud800b", "run": ["x"]}}]'
    )
    (found,) = read_pool(tmp_path).programs
    assert (found.regret, found.mean_no_hint, found.mean_with_hint) == (None, None, None)
    assert (found.skill, found.run, found.hint) == (None, None, "a?b")


def test_a_skipped_file_that_the_index_names_is_told_once(tmp_path: Path) -> None:
    write(tmp_path, 2)
    (tmp_path / "game_0001.py").write_text("#" * (MAX_SOURCE_BYTES + 1))
    index = [{"file": f"game_{n:04d}.py"} for n in range(2)]
    (tmp_path / "pool.json").write_text(json.dumps(index))
    assert read_pool(tmp_path).skipped == (
        ("game_0001.py", f"is longer than {MAX_SOURCE_BYTES} bytes"),
    )


def test_an_index_names_no_file_outside_of_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "secret.py"
    outside.write_text(program(1))
    folder = tmp_path / "pool"
    folder.mkdir()
    write(folder, 1)
    names = ["../secret.py", str(outside), "a\x1b[31m\u202e.py"]
    (folder / "pool.json").write_text(json.dumps([{"file": name} for name in names]))
    pool = read_pool(folder)
    assert [p.file for p in pool.programs] == ["game_0000.py"]
    assert [reason for _, reason in pool.skipped] == 3 * [
        "named in pool.json, but there is no such file"
    ]
    assert "\x1b" not in pool.summary()
    assert "\u202e" not in pool.summary()


def test_a_folder_that_is_none_or_holds_nothing_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent.pool=.*No such file.*spade-async export"):
        read_pool(tmp_path / "gone")
    file = tmp_path / "file.py"
    file.write_text(program(1))
    with pytest.raises(ConfigError, match="Not a directory"):
        read_pool(file)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match=r"there is no file \*.py in it"):
        read_pool(empty)
    (empty / "a.py").write_text("")
    with pytest.raises(ConfigError, match=r"a.py: the program is empty"):
        read_pool(empty)


def test_the_seed_pool_draws_by_seed_and_takes_out_what_fails(tmp_path: Path) -> None:
    write(tmp_path, 4)
    (tmp_path / "bad.py").write_text("")
    pool = SeedPool(games, str(tmp_path))
    drawn = [pool.draw(seed) for seed in range(8)]
    assert [d.environment_id for d in drawn if d] == [
        d.environment_id for d in (pool.draw(seed) for seed in range(8)) if d
    ]
    assert {d.source for d in drawn if d} == {program(n) for n in range(4)}
    assert all(d is not None and (d.origin, d.hint_mode) == ("seed", "none") for d in drawn)
    assert pool.figures() == {"pool/programs": 4.0, "pool/skipped": 1.0, "pool/failed": 0.0}
    first = drawn[0]
    assert first is not None
    told = pool.failed(first.environment_id, "failed in 8 of 8 episodes")
    assert told == (
        "pool program game_0000.py fails and is not played again: failed in 8 of 8 episodes "
        "(3 left)"
    )
    assert pool.failed(first.environment_id, "again") is None
    assert first.environment_id not in {d.environment_id for d in map(pool.draw, range(50)) if d}
    for identity in {d.environment_id for d in map(pool.draw, range(50)) if d}:
        pool.failed(identity, "x")
    assert pool.draw(1) is None
    assert pool.figures() == {"pool/programs": 0.0, "pool/skipped": 1.0, "pool/failed": 4.0}


def test_without_a_folder_the_domain_has_the_programs() -> None:
    assert SeedPool(games).draw(3) is None
    assert SeedPool(games).figures() == {}
    drawn = SeedPool(nano).draw(3)
    assert drawn is not None
    assert drawn.source == next(nano.seed_environments(3))
    assert drawn.labels
    assert SeedPool(nano).failed(drawn.environment_id, "x") is None

"""`env try` through the real jail: stages, play by hand, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spade_async.commands.env import EXIT_NO_FILE, EXIT_OK, EXIT_REJECTED, app
from spade_async.environment.contract import MAX_SOURCE_BYTES
from tests.support import environments
from tests.support.pool_programs import PROGRAMS

pytestmark = pytest.mark.timeout(60)
EXAMPLES = Path(__file__).parents[2] / "configs" / "environments"
STAGES = ("load", "reset", "step", "determinism", "termination", "reward", "hint")


def attempt(file: Path, *options: str, keys: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, ["try", str(file), *options], input=keys)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def written(folder: Path, source: str) -> Path:
    file = folder / "environment.py"
    file.write_text(source)
    return file


def test_a_good_file_passes_all_stages_and_is_played_from_a_pipe(tmp_path: Path) -> None:
    file = written(tmp_path, environments.GOOD)
    code = "from spade_async.commands.env import app; app()"
    command = [sys.executable, "-c", code, "try", str(file), "--seed", "3"]
    done = subprocess.run(command, input="?\n71\n", capture_output=True, text=True, timeout=50)
    assert done.returncode == EXIT_OK, done.stderr
    for stage in STAGES:
        assert f"✓  {stage}" in done.stdout
    assert "hint: begin with" in done.stdout
    assert "turn 1  reward" in done.stdout
    assert "episode return" in done.stdout
    assert done.stderr == ""


def test_several_turns_are_played_until_the_end(tmp_path: Path) -> None:
    file = written(tmp_path, environments.MULTI_TURN)
    code, output = attempt(file, keys="".join(f"{i}\n" for i in (9, 9, 9)))
    assert code == EXIT_OK
    assert "turn 3" in output
    assert "truncated True" in output


def test_end_of_input_leaves_without_a_fault(tmp_path: Path) -> None:
    code, output = attempt(written(tmp_path, environments.GOOD))
    assert code == EXIT_OK
    assert "end of input" in output


def test_a_bad_file_stops_at_its_stage_with_exit_code_1(tmp_path: Path) -> None:
    code, output = attempt(written(tmp_path, environments.RESET_RAISES))
    assert code == EXIT_REJECTED
    assert "✗  reset" in output
    assert "KeyError" in output
    assert "rejected at reset" in output


def test_a_file_without_hint_is_fine_where_none_is_asked(tmp_path: Path) -> None:
    file = written(tmp_path, environments.NO_HINT)
    assert attempt(file)[0] == EXIT_REJECTED
    assert attempt(file, "--no-hint")[0] == EXIT_OK


def test_an_environment_that_fails_in_play_says_where(tmp_path: Path) -> None:
    file = written(
        tmp_path, environments.MULTI_TURN.replace("won = guess", "assert guess != 5; won = guess")
    )
    code, output = attempt(file, keys="5\n")
    assert code == EXIT_REJECTED
    assert "step 1: exception" in output


def test_control_characters_of_a_program_do_not_reach_the_terminal(tmp_path: Path) -> None:
    source = environments.GOOD.replace(' = ?"', ' = ?\\x1b[2J [bold]x"')
    _, output = attempt(written(tmp_path, source))
    assert "\x1b[2J" not in output
    assert "[bold]x" in output


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda file: None, "does not exist"),
        (lambda file: file.mkdir(), "is a folder"),
        (lambda file: file.write_bytes(b"\xff\xfe"), "is not UTF-8"),
        (lambda file: file.write_text("#" * (MAX_SOURCE_BYTES + 1)), "is longer than"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_exit_code_2(
    tmp_path: Path, make: object, words: str
) -> None:
    file = tmp_path / "environment.py"
    make(file)  # type: ignore[operator]
    code, output = attempt(file)
    assert code == EXIT_NO_FILE
    assert words in output
    assert output.count("\n") == 1


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_each_example_is_a_valid_environment(example: Path) -> None:
    code, output = attempt(example)
    assert code == EXIT_OK, output


def test_a_folder_is_checked_and_what_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PROGRAMS["factory"].source)
    (tmp_path / "b.py").write_text(environments.STEP_RAISES)
    (tmp_path / "c.py").write_text(environments.GOOD.replace('"over"', 'f"{no number}"'))
    (tmp_path / "d.py").write_text("")
    result = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == EXIT_REJECTED, result.output
    assert "skipped   d.py: the program is empty" in result.output
    assert "step      b.py: step 1 with" in result.output
    assert "2 valid" in result.output
    assert "1 of them only after a repair of their text" in result.output
    assert "1 rejected: step 1" in result.output
    for name in "bcd":
        (tmp_path / f"{name}.py").unlink()
    result = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert (result.exit_code, result.output) == (EXIT_OK, "1 valid\n")
    result = CliRunner().invoke(app, ["check", str(tmp_path / "gone")])
    assert result.exit_code == EXIT_NO_FILE
    assert "No such file" in result.output

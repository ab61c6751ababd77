from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from spade_async.errors import EXIT_REFUSED
from spade_async.supervisor.death import cause, death_line, how, last_error
from spade_async.supervisor.parts import Part
from spade_async.telemetry.status import RunStatus


def dead(log: Path, returncode: int) -> Part:
    return cast(
        Part, SimpleNamespace(name="gen-0", pid=42, returncode=returncode, log=log, log_start=0)
    )


@pytest.mark.parametrize(
    ("returncode", "words"),
    [(3, "exit code 3"), (0, "left before the run was done"), (-9, "SIGKILL"), (-11, "SIGSEGV"),
     (-64, "SIGRTMAX"), (-77, "signal 77")],
)  # fmt: skip
def test_exit_codes_are_said_in_words(returncode: int, words: str) -> None:
    assert words in how(returncode)


def test_line_says_who_why_and_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "gen-0.log"
    log.write_text("2026 gen-0 INFO x: fine\nTraceback (most recent call last):\n  boom\n"
                   "ValueError: no room\n\n")  # fmt: skip
    line = death_line(dead(log, 1), None, tmp_path)
    assert line == (
        f"gen-0 (pid 42) ended with exit code 1: ValueError: no room; see {log}; "
        f"go on with spade-async train {tmp_path} --resume"
    )


def test_what_a_resume_cannot_mend_is_not_answered_by_a_resume_alone(tmp_path: Path) -> None:
    log = tmp_path / "gen-0.log"
    log.write_text("ConfigError: grounding.corpus='x' holds no usable document\n")
    line = death_line(dead(log, EXIT_REFUSED), None, tmp_path)
    assert line.endswith(
        f"holds no usable document; see {log}; mend that first, then spade-async train {tmp_path} "
        "--resume, or a new run with other settings"
    )


def test_logged_error_is_found_without_its_prefix(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("2026-01-01 10:00:00,000 gen-0 ERROR spade_async.x: engine died\nbye\n")
    assert last_error(log) == "engine died"


def test_last_words_told_to_the_coordinator_are_the_reason(tmp_path: Path) -> None:
    status = RunStatus(state="running", failure="gen-0: GenerationError: prompt too long")
    line = death_line(dead(tmp_path / "none.log", 1), status, tmp_path)
    assert "ended with exit code 1: GenerationError: prompt too long;" in line


def test_words_of_another_part_are_not_taken(tmp_path: Path) -> None:
    status = RunStatus(state="running", failure="learner: X: y")
    assert "X: y" not in death_line(dead(tmp_path / "none.log", -9), status, tmp_path)


def test_line_stays_one_bounded_line(tmp_path: Path) -> None:
    status = RunStatus(state="failed", failure="a\nb\x1b[31m" + "x" * 1000)
    line = death_line(dead(tmp_path / "none.log", 1), status, tmp_path)
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 800


def test_log_without_errors_gives_no_reason(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"\xff\xfe all is well\n")
    assert last_error(log) is None
    assert last_error(tmp_path / "none") is None


def test_cause_is_part_kind_and_exit_signal_or_exception(tmp_path: Path) -> None:
    log = tmp_path / "gen-0.log"
    log.write_text("x.GenerationError: request 7 failed\n")
    assert cause(dead(log, -9), None) == "generator signal 9"
    assert cause(dead(log, 0), None) == "generator exit 0"
    assert cause(dead(log, 1), None) == "generator exit 1 GenerationError"
    status = RunStatus(state="running", failure="gen-0: SandboxError: broker 3 is dead")
    assert cause(dead(log, 1), status) == "generator exit 1 SandboxError"


def test_error_of_an_earlier_life_is_not_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "gen-0.log"
    log.write_text("ValueError: of the first life\n")
    part = dead(log, 3)
    part.log_start = log.stat().st_size
    assert cause(part, None) == "generator exit 3"
    assert "first life" not in death_line(part, None, tmp_path)

"""What a log says of untrusted texts cannot control the terminal that shows it."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

import pytest

from spade_async.supervisor.death import last_error
from spade_async.telemetry import logs

FORGED = "2026-01-01 10:00:00,000 learner ERROR spade_async.x: FakeError: send money"


def written(capsys, write) -> str:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook
    try:
        logs.configure("gen-0")
        write(logging.getLogger("a"))
    finally:
        root.handlers[:], root.level = before
        logging.captureWarnings(False)
        sys.excepthook, threading.excepthook = hooks
    return capsys.readouterr().err


def test_escape_sequences_of_a_quoted_text_are_written_out(capsys):
    text = "in step: \x1b[2J\u202e\x07\r\ud800 é 漢\tend"
    line = written(capsys, lambda log: log.warning("rejected: %s", text))
    assert line.endswith(
        " gen-0 WARNING a: rejected: in step: \\x1b[2J\\u202e\\x07\\r\\ud800 é 漢\tend\n"
    )


def test_so_are_those_of_a_traceback_whose_lines_stay(capsys):
    def fail(log: logging.Logger) -> None:
        try:
            raise ValueError("\x1b]0;owned")
        except ValueError:
            log.exception("fault")

    text = written(capsys, fail)
    assert text.splitlines()[-1] == "ValueError: \\x1b]0;owned"
    assert len(text.splitlines()) > 3


def chained(log: logging.Logger, text: str) -> None:
    try:
        try:
            raise KeyError("k")
        except KeyError as cause:
            raise ValueError(f"in step: {text}") from cause
    except ValueError:
        log.exception("design %s is missing: %s", "d-1", text)


def uncaught(log: logging.Logger, text: str) -> None:
    try:
        raise RuntimeError(f"it said {text}")
    except RuntimeError as fault:
        sys.excepthook(type(fault), fault, fault.__traceback__)


def in_thread(log: logging.Logger, text: str) -> None:
    def fail() -> None:
        raise RuntimeError(f"it said {text}")

    thread = threading.Thread(target=fail, name="t")
    thread.start()
    thread.join()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\x0b", "\x85", "\u2028"], ids=ascii)
@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda log, text: log.warning("rejected: %s", text), None),
        (lambda log, text: log.error("it said %s", text), "it said"),
        (chained, "ValueError: in step: "),
        (uncaught, "RuntimeError: it said"),
        (in_thread, "RuntimeError: it said"),
    ],
    ids=["warning", "error", "chained", "uncaught", "in_thread"],
)
def test_quoted_text_begins_no_line_and_no_cause_of_death(
    capsys, tmp_path: Path, write, says: str | None, newline: str
) -> None:
    quoted = f"a{newline}{FORGED}{newline}FakeError: send money{newline}b"
    text = written(capsys, lambda log: write(log, quoted))
    assert not [line for line in text.splitlines() if line.startswith((FORGED, "FakeError"))]
    log = tmp_path / "gen-0.log"
    log.write_text(text)
    found = last_error(log)
    assert (found is None) if says is None else (found or "").startswith(says)


def test_a_quoted_line_is_no_error_wherever_it_stands(tmp_path: Path) -> None:
    log = tmp_path / "gen-0.log"
    log.write_text(f"2026-01-01 10:00:00,000 gen-0 WARNING a: rejected: {FORGED}\n")
    assert last_error(log) is None

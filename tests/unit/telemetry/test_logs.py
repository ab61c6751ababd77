"""What a log says of untrusted texts cannot control the terminal that shows it."""

from __future__ import annotations

import logging

from spade_async.telemetry import logs


def written(capsys, write) -> str:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.configure("gen-0")
        write(logging.getLogger("a"))
    finally:
        root.handlers[:], root.level = before
        logging.captureWarnings(False)
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

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from spade_async.telemetry import alerts as module
from spade_async.telemetry.alert_command import AlertCommand
from spade_async.telemetry.alert_kinds import KINDS
from spade_async.telemetry.alerts import MOST_PER_WINDOW, WINDOW_S, Alert, Alerts

PAGE = Path(__file__).parents[3] / "docs" / "guard.md"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(path: Path, limit_s: float = 20.0) -> str:
    deadline = time.monotonic() + limit_s
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.02)
    return path.read_text()


def test_a_quoted_text_costs_no_alert_and_reaches_no_terminal(tmp_path: Path) -> None:
    # A file name that is no UTF-8 has lone surrogates: telling of it ended the coordinator.
    alerts = Alerts(tmp_path / "alerts.jsonl")
    told = alerts.tell("pool_program", "a\udcff\x1b[2J\u202e\u2028.py\nfails: é 漢 ±")
    assert told is not None
    assert told.text == "a  [2J  .py fails: é 漢 ±"
    (line,) = lines(tmp_path / "alerts.jsonl")
    assert line["text"] == told.text


def test_an_alert_is_one_line_of_json_with_all_its_fields(tmp_path: Path) -> None:
    alerts = Alerts(tmp_path / "alerts.jsonl")
    before = time.time()
    alerts.tell("disk_full", "no room for a checkpoint", step=7)
    (line,) = lines(tmp_path / "alerts.jsonl")
    assert before <= line.pop("unix_s") <= time.time()
    assert line == {
        "step": 7,
        "kind": "disk_full",
        "text": "no room for a checkpoint",
        "action": KINDS["disk_full"].action,
        "held_back": 0,
    }


def test_a_repeated_alert_is_held_back_and_counted(tmp_path: Path) -> None:
    now = 0.0
    alerts = Alerts(tmp_path / "alerts.jsonl", clock=lambda: now)
    for step in range(10):
        alerts.tell("nonfinite_update", f"step {step}: not finite", step=step)
    assert [a.text for a in alerts.recent] == ["step 0: not finite"]
    now = WINDOW_S
    told = alerts.tell("nonfinite_update", "step 11: not finite")
    assert told is not None
    assert told.held_back == 9
    assert "(and 9 more like it)" in str(told)
    assert len(lines(tmp_path / "alerts.jsonl")) == 2


def test_many_different_alerts_of_one_kind_are_limited_and_other_kinds_are_not() -> None:
    alerts = Alerts(clock=lambda: 0.0)
    for letter in "abcdefgh":
        alerts.tell("other", f"{letter} happened")
    assert len(alerts.recent) == MOST_PER_WINDOW
    assert alerts.tell("disk_full", "x") is not None


def test_what_the_disk_does_not_take_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "alerts.jsonl"
    alerts = Alerts(path)
    alerts.tell("other", "first")
    with monkeypatch.context() as full:
        # A disk that takes half of the line.
        real = module.os.write
        full.setattr(module.os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        assert alerts.tell("other", "second") is not None
    assert [line["text"] for line in lines(path)] == ["first"]
    alerts.write()
    assert [line["text"] for line in lines(path)] == ["first", "second"]


@pytest.mark.parametrize("is_list", [True, False])
def test_the_command_gets_the_alert_as_json_on_stdin(tmp_path: Path, is_list: bool) -> None:
    target = tmp_path / "got"
    code = f"import sys; open({str(target)!r}, 'w').write(sys.stdin.read())"
    command = [sys.executable, "-c", code] if is_list else f"cat > {target}"
    alerts = Alerts(command=command)
    alerts.tell("disk_full", 'a "quoted" text\nof two lines', step=3)
    assert Alert.model_validate_json(wait_for(target)) == alerts.recent[0]
    alerts.close()


def test_a_command_that_hangs_is_killed_and_never_blocks(tmp_path: Path) -> None:
    command = AlertCommand(f"sleep 600 & echo $! > {tmp_path / 'pid'}; sleep 600", limit_s=0.5)
    began = time.monotonic()
    for _ in range(40):
        command.run("x" * 100_000)  # more than a pipe holds, and nobody reads it
    assert time.monotonic() - began < 1.0
    pid = int(wait_for(tmp_path / "pid"))
    queued = command._waiting
    deadline = time.monotonic() + 20
    while command.num_failed == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert command.num_failed >= 1
    # What it had started is gone with it.
    gone = time.monotonic() + 10
    while (stat := Path(f"/proc/{pid}/stat")).exists() and " Z " not in stat.read_text():
        assert time.monotonic() < gone
        time.sleep(0.05)
    assert queued.qsize() > 0, "some wait still"
    command.close(0.1)
    last = int(wait_for(tmp_path / "pid"))
    assert not command._thread.is_alive()
    assert not Path(f"/proc/{last}").exists() or " Z " in Path(f"/proc/{last}/stat").read_text()


@pytest.mark.parametrize("command", ["exit 3", ["/no/such/program"]])
def test_a_command_that_fails_is_a_line_in_the_log(
    command: str | list[str], caplog: pytest.LogCaptureFixture
) -> None:
    alerts = Alerts(command=command)
    alerts.tell("other", "x")
    alerts.close(20.0)
    assert [
        r for r in caplog.records if "run.alert_command" in r.message and r.levelname == "ERROR"
    ]


def test_a_sentence_of_an_older_status_file_is_an_alert() -> None:
    alert = Alert.model_validate("look here")
    assert (alert.kind, str(alert)) == ("other", "look here")


def test_the_page_has_every_kind() -> None:
    text = " ".join(PAGE.read_text().split())
    for name, kind in KINDS.items():
        assert f"| `{name}` | {kind.meaning} |" in text, name

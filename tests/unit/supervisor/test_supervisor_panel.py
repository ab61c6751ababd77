from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from spade_async.supervisor.display import LiveDisplay, PlainDisplay, make_display
from spade_async.supervisor.panel import panel, plain_line
from spade_async.telemetry.alerts import Alert
from spade_async.telemetry.status import ProcessStatus, RunStatus

RUNNING = RunStatus(
    state="running",
    step=12,
    steps=150,
    policy_version="0.12",
    processes=[
        ProcessStatus(name="gen-0", pid=7, state="working", waits_for="[red]", oldest_wait_s=3)
    ],
    episodes_per_hour=123456.0,
    limited_by="learner: it waits only 2% of the time",
    alerts=["one", "two"],
    metrics={"designer/validity": 0.9, "regret/mean": 0.081, "mix/family/mod": 0.3,
             "mix/family/add": 0.5, "jail/p50_s": 0.002, "jail/p99_s": 1.5},
)  # fmt: skip


def rendered(status: RunStatus, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(panel(status))
    return console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_panel_shows_what_the_run_does() -> None:
    text = rendered(RUNNING)
    for shown in ("12/150", "90%", "0.081", "add 50%  mod 30%", "123,456", "2.0 ms / 1.5 s",
                  "learner: it waits", "! two", "gen-0", "waits for [red] (3 s)"):  # fmt: skip
        assert shown in text


@pytest.mark.parametrize("width", [200, 140, 80, 60])
def test_no_figure_is_cut_off_whatever_the_width(width: int) -> None:
    text = rendered(RUNNING, width)
    names = (
        "validity", "last 200 designs", "regret", "skeletons/batch", "solved without hint",
        "solved with hint", "frontier", "held out", "episodes/h", "generator idle", "learner idle",
        "jail p50 / p99", "staleness agent", "staleness designer", "clipped", "oldest wait",
    )  # fmt: skip
    for shown in (*names, "123,456", "2.0 ms / 1.5 s", "0.081", "12/150"):
        assert shown in text
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_an_alert_says_when_it_was_told() -> None:
    told_s = time.mktime((2026, 3, 4, 15, 7, 9, 0, 0, -1))
    status = RUNNING.model_copy(update={"alerts": [Alert(text="gen-0 died", unix_s=told_s)]})
    assert "! 03-04 15:07 gen-0 died" in rendered(status)
    assert "alerts 1: 03-04 15:07 gen-0 died" in plain_line(status)


def test_no_escape_sequence_of_a_quoted_text_reaches_the_terminal() -> None:
    quoted = "pool program a\x1b[2J\u202e.py fails: [/x] \x1b]0;owned\x07"
    alert = Alert(unix_s=1.0, step=1, kind="pool_program", text=quoted)
    status = RUNNING.model_copy(
        update={"alerts": [alert], "limited_by": quoted, "failure": quoted, "state": "failed"}
    )
    for display in (LiveDisplay, PlainDisplay):
        file = io.StringIO()
        shown = display(Console(file=file, width=140, force_terminal=True, color_system="256"))
        shown.start()
        shown.show(status)
        shown.say(quoted)
        shown.stop()
        text = file.getvalue()
        assert "fails: [/x]" in text
        for sequence in ("\x1b[2J\u202e", "\u202e", "\x1b]0", "\x07"):
            assert sequence not in text


def test_unknown_numbers_are_dashes_not_zeros() -> None:
    status = RunStatus(state="running", metrics={"learner/loss": 0.0})
    text = rendered(status)
    assert "0%" not in text
    assert " -" in text
    assert "validity -" in plain_line(status)


def test_empty_and_failed_states_can_be_shown() -> None:
    assert "starting" in rendered(RunStatus(state="starting"))
    failed = RunStatus(state="failed", failure="gen-0 died")
    assert "gen-0 died" in rendered(failed)


def test_plain_line_is_one_line() -> None:
    line = plain_line(RUNNING)
    assert "\n" not in line
    assert line.startswith("running step 12/150 | validity 90%")
    assert "limited by learner" in line


def test_plain_display_repeats_nothing() -> None:
    console = Console(file=io.StringIO(), width=80)
    display = PlainDisplay(console)
    display.start()
    display.show(RUNNING)
    display.show(RUNNING)
    display.stop()
    assert console.file.getvalue().count("running step") == 1  # type: ignore[attr-defined]


def test_live_display_leaves_only_what_was_said() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    display = make_display(console)
    assert isinstance(display, LiveDisplay)
    display.start()
    display.show(RUNNING)
    display.say("stays [here]")
    display.stop()
    assert "stays [here]" in console.file.getvalue()  # type: ignore[attr-defined]

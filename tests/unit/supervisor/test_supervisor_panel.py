from __future__ import annotations

import io

from rich.console import Console

from spade_async.supervisor.display import LiveDisplay, PlainDisplay, make_display
from spade_async.supervisor.panel import panel, plain_line
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

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from spade_async.commands.report import build_report, report
from spade_async.config.load import dump_resolved
from spade_async.config.schema import Config
from spade_async.errors import ConfigError, LedgerError
from spade_async.evals.tables import end_table
from spade_async.ledger import Ledger
from spade_async.types import PolicyVersion

KEYS = [
    "wall_seconds",
    "cpu_seconds",
    "warm_start_seconds",
    "steps",
    "designer_validity",
    "skeletons_per_batch_min",
    "largest_family_share_last_third",
    "mean_level_first_third",
    "mean_level_last_third",
    "samples_over_bound",
    "tokens_discarded_for_age",
    "tokens_cut_at_deadline",
    "samples_lost",
    "lost_to_rollback",
    "samples_trained_twice",
    "episodes_per_hour",
    "peak_memory_gib",
    "generator_idle_share",
    "learner_idle_share",
    "restarts",
    "nonfinite_updates",
    "alerts",
    "held_out",
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has been scored once and has done no step."""
    dump_resolved(Config(), tmp_path)
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, create=True, config_digest="c") as ledger, ledger.transaction():
        ledger.add_version(0, PolicyVersion(0, 0), "d", "shm", None, 0.0)
        ledger.add_eval(0, PolicyVersion(0, 0), "1", 96, 0.5, 0.05)
        ledger.put_state("counters", {"tokens_cut_at_deadline": 7})
        ledger.add_alert(1.0, 0, "something [odd]")
        for number in range(3):
            ledger.add_prompts(f"d-{number}", {"designer": f"games-{number // 2 + 1}", "hint": "h"})
    return tmp_path


def test_report_has_every_key_and_none_for_what_is_unknown(run: Path) -> None:
    figures = build_report(run)
    assert set(KEYS) <= set(figures)
    for key in ("wall_seconds", "designer_validity", "episodes_per_hour", "peak_memory_gib"):
        assert figures[key] is None
    assert figures["steps"] == 0
    assert figures["samples_lost"] == 0
    assert figures["tokens_cut_at_deadline"] == 7
    assert figures["alerts"] == ["something [odd]"]
    assert figures["held_out"][0] == {
        "level": "1", "n": 96, "base": 0.5, "base_se": 0.05, "trained": None, "trained_se": None,
        "difference": None, "difference_se": None,
    }  # fmt: skip


def test_json_and_table_can_be_printed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), width=120)
    report(run, as_json=True, console=console)
    assert json.loads(capsys.readouterr().out)["steps"] == 0
    console.print(end_table(build_report(run)))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "0.500 ± 0.050" in text
    assert "something [odd]" in text


def test_no_escape_sequence_of_an_alert_reaches_the_terminal(run: Path) -> None:
    figures = build_report(run)
    figures["alerts"] = ["a\x1b[2J\x1b]0;b\x07\u202e [/x]"]
    figures["held_out"][0]["level"] = "[/level]\x1b[2J"
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system="256")
    console.print(end_table(figures))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "[/x]" in text
    assert "[/level]" in text
    for sequence in ("\x1b[2J", "\x1b]0", "\x07", "\u202e"):
        assert sequence not in text


def test_other_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder"):
        build_report(tmp_path)
    dump_resolved(Config(), tmp_path)
    with pytest.raises(LedgerError):
        build_report(tmp_path)


def test_versions_of_prompts_are_shown_with_their_groups(run: Path) -> None:
    console = Console(file=io.StringIO(), width=100)
    report(run, as_json=False, console=console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "designer games-1 (groups: 2), games-2 (groups: 1); hint h" in " ".join(shown.split())

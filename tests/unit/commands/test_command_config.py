"""`config show` refuses what `train` refuses: a skill that the domain does not have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spade_async import cli

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["nano.toml", "scripted.toml"])
@pytest.mark.parametrize("command", ["show", "train"])
def test_an_unknown_skill_is_one_line_with_a_suggestion(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    command: str,
) -> None:
    run = tmp_path / "run"
    words = ["config", "show"] if command == "show" else ["train", "--run-dir", str(run)]
    skill = '--set=designer.skills=["Mathematical Reasonin"]'
    monkeypatch.setattr(sys, "argv", ["spade-async", *words, str(CONFIGS / name), skill])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    shown = capsys.readouterr()
    assert "did you mean 'Mathematical Reasoning'" in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
    assert not run.exists()
